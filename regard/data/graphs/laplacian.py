"""Laplacian positions (Dwivedi & Bresson 2021, section 2.1): where a node stands in its graph, as sines do in a sentence.

    L = I - D^-1/2 A D^-1/2 = U Λ Uᵀ,   the position of node i is row i of the K columns of U with the least Λ but the first

The first says only how many edges a node has. Of a graph in several parts the following tell the parts apart. Signs of
eigenvectors mean nothing: here the entry that is greatest by size is positive, and in training each is turned at random.
Small graphs are decomposed as matrices; of larger ones a Krylov space of blocks gives the K + 1 greatest eigenvectors of
D^-1/2 A D^-1/2 (block Lanczos with full orthogonalisation), in memory of N and time of E.
"""

from __future__ import annotations

import numpy as np

SMALL = 1500  # nodes up to which the whole matrix is decomposed
BLOCKS = 80  # most blocks of the Krylov space
CLOSE = 1e-7  # largest residual of an eigenvector that is taken


def laplacian_positions(edges: np.ndarray, nodes: int, count: int) -> np.ndarray:
    """Positions of nodes in a graph without direction: (N, K); zeros where there are fewer eigenvectors."""
    edges = np.unique(np.concatenate([edges, edges[::-1]], axis=1), axis=1)
    edges = edges[:, edges[0] != edges[1]]
    wanted = min(count + 1, nodes)
    vectors = _of_matrix(edges, nodes, wanted) if nodes <= SMALL else _of_blocks(edges, nodes, wanted)
    found = np.zeros((nodes, count), dtype=np.float32)
    found[:, : wanted - 1] = with_signs(vectors[:, 1:])
    return found


def with_signs(vectors: np.ndarray) -> np.ndarray:
    """Columns whose entry that is greatest by size is positive."""
    if vectors.size == 0:
        return vectors
    greatest = np.abs(np.round(vectors, 9)).argmax(axis=0)  # of equals the first, whatever rounding says
    signs = np.sign(vectors[greatest, np.arange(vectors.shape[1])])
    return vectors * np.where(signs == 0, 1.0, signs)


def edge_norms(edges: np.ndarray, nodes: int) -> np.ndarray:
    """1 / √(d_i d_j) of each edge: (E,)."""
    roots = np.sqrt(np.bincount(edges[1], minlength=nodes).clip(min=1))
    return 1.0 / (roots[edges[0]] * roots[edges[1]])


def laplacian(edges: np.ndarray, nodes: int) -> np.ndarray:
    """I - D^-1/2 A D^-1/2; a node without edges has eigenvalue 0, as every part of a graph has: (N, N)."""
    found = np.diag((np.bincount(edges[1], minlength=nodes) > 0).astype(float))
    found[edges[1], edges[0]] -= edge_norms(edges, nodes)
    return found


def _of_matrix(edges: np.ndarray, nodes: int, count: int) -> np.ndarray:
    _, vectors = np.linalg.eigh(laplacian(edges, nodes))
    return vectors[:, :count]


def _of_blocks(edges: np.ndarray, nodes: int, count: int) -> np.ndarray:
    """The eigenvectors of the greatest eigenvalues of I - L, the greatest first: (N, count)."""
    norms, alone = edge_norms(edges, nodes), (np.bincount(edges[1], minlength=nodes) == 0).astype(float)

    def times(x: np.ndarray) -> np.ndarray:
        """(I - L) x, edge by edge."""
        columns = [np.bincount(edges[1], norms * x[edges[0], each], nodes) for each in range(x.shape[1])]
        return np.stack(columns, axis=1) + alone[:, None] * x

    block, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((nodes, count + 2)))
    basis, products = block, times(block)
    for _ in range(BLOCKS):
        values, inside = np.linalg.eigh(basis.T @ products)
        values, inside = values[::-1][:count], inside[:, ::-1][:, :count]
        vectors = basis @ inside
        if np.abs(products @ inside - vectors * values).max() < CLOSE:
            break
        new = products[:, -block.shape[1] :]
        for _ in range(2):  # twice is enough to be orthogonal to rounding
            new = new - basis @ (basis.T @ new)
        block, sizes = np.linalg.qr(new)
        block = block[:, np.abs(np.diag(sizes)) > 1e-10]  # directions that are exhausted
        if block.shape[1] == 0:
            break
        basis, products = np.concatenate([basis, block], 1), np.concatenate([products, times(block)], 1)
    return vectors
