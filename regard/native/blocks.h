/* The parts of a Transformer's block, for rows of tokens: norms, attention, feed-forward.

   N tokens, width D, H heads of width E in G groups that share keys and values, F numbers inside feed-forward. `Block` and the
   structures in it are filled in by Python (regard/models/fast/native.py), field by field as they stand here. */

#ifndef BLOCKS_H
#define BLOCKS_H

#include "products.h"

typedef enum { NO_NORM, LAYER_NORM, ROOT_MEAN_SQUARE } NormKind;
typedef enum { RELU, SWISH, GELU, GELU_TANH, GATE } Activation;

typedef struct {
    const REAL *weight, *bias; /* (D,), or none */
    double epsilon;
    Int kind;
} Norm;

typedef struct {
    Norm own_norm, cross_norm, last_norm;
    Product project;    /* (N, D) -> (N, D + 2 G E): queries, scaled; keys; values */
    Product join;       /* (N, H E) -> (N, D) */
    Product ask, reply; /* to the memory: queries, scaled; what heads saw */
    Product up, down;
    Int norms_first; /* norms stand before each part, not behind */
    Int narrow;      /* sees only the last tokens */
    Int crosses;     /* has a memory to look at */
    Int activation;
} Block;

/* The sizes that all blocks of a model share. */
typedef struct {
    Int layers, width, heads, groups, each, inner; /* L, D, H, G, E, and what `up` gives */
} Sizes;

/* One row (D,) normalised into `out`. */
static void normalise_row(const Norm *norm, const REAL *x, REAL *out, Int width)
{
    REAL mean = norm->kind == LAYER_NORM ? total(x, width) / (REAL)width : 0;
    for (Int i = 0; i < width; i++)
        out[i] = x[i] - mean;
    REAL scale = 1 / (REAL)sqrt((double)dot(out, out, width) / (double)width + norm->epsilon);
    if (norm->weight == NULL)
        for (Int i = 0; i < width; i++)
            out[i] *= scale;
    else
        for (Int i = 0; i < width; i++)
            out[i] *= scale * norm->weight[i];
    if (norm->bias != NULL)
        for (Int i = 0; i < width; i++)
            out[i] += norm->bias[i];
}

/* Rows (N, D), normalised into `out`, which may be x itself; gives where they are now. */
static const REAL *normalised(const Norm *norm, const REAL *x, REAL *out, Int rows, Int width)
{
    if (norm->kind == NO_NORM)
        return x;
    for (Int row = 0; row < rows; row++)
        normalise_row(norm, x + row * width, out + row * width, width);
    return out;
}

#define IN_REGISTERS 8 /* vectors of one head that are summed without going to memory */

/* Sum of weights[i] V[places[i]] of one head (E,), places in turns into two sums, which do not wait for each other. */
INLINE void mix(const Int each, const REAL *weights, const REAL *values, Int stride, const int32_t *places, Int count, REAL *seen)
{
    Vector sum[2][IN_REGISTERS] = {{{0}}};
    Int i = 0;
    for (; i + 2 <= count; i += 2)
#pragma GCC unroll 2
        for (Int turn = 0; turn < 2; turn++)
#pragma GCC unroll 8
            for (Int c = 0; c < each / LANES; c++)
                sum[turn][c] += weights[i + turn] * vector_at(values + places[i + turn] * stride + c * LANES);
    for (; i < count; i++)
#pragma GCC unroll 8
        for (Int c = 0; c < each / LANES; c++)
            sum[0][c] += weights[i] * vector_at(values + places[i] * stride + c * LANES);
#pragma GCC unroll 8
    for (Int c = 0; c < each / LANES; c++)
        *(Vector *)(seen + c * LANES) = sum[0][c] + sum[1][c];
}

/* As `mix`, of heads of any width. */
static void mix_any(Int each, const REAL *weights, const REAL *values, Int stride, const int32_t *places, Int count, REAL *seen)
{
    memset(seen, 0, each * sizeof(REAL));
    for (Int i = 0; i < count; i++) {
        const REAL *value = values + places[i] * stride;
        for (Int e = 0; e < each; e++)
            seen[e] += weights[i] * value[e];
    }
}

/* One query (E,) of one head, the keys and values that it sees at some places, and where what it saw goes. */
typedef struct {
    const REAL *query, *keys, *values;
    const int32_t *places;
    Int count;
    REAL *seen;
} Query;

#define TOGETHER 8 /* queries whose scores are made before the first is read again: numbers that were just stored one by one are
                      not there yet for whoever reads a vector of them */

INLINE Int filled_up(Int count) { return (count + LANES - 1) / LANES * LANES; }

/* Scores q Kᵀ of one query, with -inf behind up to whole vectors. */
INLINE void score(const Int each, const Query *q, Int stride, REAL *scores)
{
    for (Int i = 0; i < q->count; i++)
        scores[i] = dot(q->query, q->keys + q->places[i] * stride, each);
    for (Int i = q->count; i < filled_up(q->count); i++)
        scores[i] = (REAL)-INFINITY;
}

/* The softmax of some scores, in place; nothing of none. */
INLINE void soften(REAL *scores, Int count)
{
    Int filled = filled_up(count);
    REAL most = greatest(scores, filled);
    for (Int from = 0; from < filled; from += LANES)
        for (Int i = from; i < from + LANES; i++)
            scores[i] = exp_of(scores[i] - most);
    REAL scale = count > 0 ? 1 / total(scores, filled) : 0;
    for (Int from = 0; from < filled; from += LANES)
        for (Int i = from; i < from + LANES; i++)
            scores[i] *= scale;
}

/* softmax(q Kᵀ) V of up to TOGETHER queries; zeros where one sees nothing. `scores` has `room` numbers for each. */
INLINE void attend_by(const Int each, const Query *queries, Int number, Int stride, REAL *scores, Int room)
{
    for (Int n = 0; n < number; n++)
        score(each, queries + n, stride, scores + n * room);
    for (Int n = 0; n < number; n++)
        soften(scores + n * room, queries[n].count);
    for (Int n = 0; n < number; n++) {
        const Query *q = queries + n;
        if (each % LANES == 0 && each / LANES <= IN_REGISTERS)
            mix(each, scores + n * room, q->values, stride, q->places, q->count, q->seen);
        else
            mix_any(each, scores + n * room, q->values, stride, q->places, q->count, q->seen);
    }
}

static void attend(Int each, const Query *queries, Int number, Int stride, REAL *scores, Int room)
{
    switch (each) { /* sizes that are often met are compiled for themselves */
    case 16: attend_by(16, queries, number, stride, scores, room); break;
    case 32: attend_by(32, queries, number, stride, scores, room); break;
    case 64: attend_by(64, queries, number, stride, scores, room); break;
    default: attend_by(each, queries, number, stride, scores, room); break;
    }
}

/* A query more; those that have come together are attended for when they are enough, or the last. */
typedef struct {
    Query queries[TOGETHER];
    Int number;
} Waiting;

INLINE void wait_for(Waiting *waiting, Query query, int last, Int each, Int stride, REAL *scores, Int room)
{
    waiting->queries[waiting->number++] = query;
    if (waiting->number == TOGETHER || last) {
        attend(each, waiting->queries, waiting->number, stride, scores, room);
        waiting->number = 0;
    }
}

/* Turn pairs (i, i + E / 2) of some heads, (heads, E), by the angles of a position: cosines and sines (E / 2,). */
static void turn(REAL *x, const REAL *cosine, const REAL *sine, Int heads, Int each)
{
    Int half = each / 2;
    for (Int head = 0; head < heads; head++)
        for (Int i = 0; i < half; i++) {
            REAL *pair = x + head * each + i, first = pair[0], second = pair[half];
            pair[0] = first * cosine[i] - second * sine[i];
            pair[half] = second * cosine[i] + first * sine[i];
        }
}

/* Numbers in place; of a gate with what it lets through, (N, 2 F), the first half of each row. */
static void activate(Int activation, REAL *x, Int rows, Int outputs)
{
    Int count = rows * outputs;
    switch (activation) {
    case RELU:
        for (Int i = 0; i < count; i++)
            x[i] = x[i] < 0 ? 0 : x[i];
        break;
    case SWISH:
        for (Int i = 0; i < count; i++)
            x[i] = silu_of(x[i]);
        break;
    case GELU:
        for (Int i = 0; i < count; i++)
            x[i] = gelu_of(x[i]);
        break;
    case GELU_TANH:
        for (Int i = 0; i < count; i++)
            x[i] = gelu_tanh_of(x[i]);
        break;
    default:
        for (Int row = 0; row < rows; row++) {
            const REAL *gate = x + row * outputs, *open = gate + outputs / 2;
            REAL *out = x + row * (outputs / 2); /* before what is still to be read */
            for (Int i = 0; i < outputs / 2; i++)
                out[i] = silu_of(gate[i]) * open[i];
        }
    }
}

/* x + FFN(x) in place; `room` has (N, D) for what norms give and (N, F or 2 F) behind it. */
static void feed_forward(const Block *block, const Sizes *sizes, REAL *x, Int rows, REAL *normed, REAL *inner)
{
    const REAL *read = block->norms_first ? normalised(&block->last_norm, x, normed, rows, sizes->width) : x;
    multiply(&block->up, read, inner, rows, PUT);
    activate(block->activation, inner, rows, block->up.outputs);
    multiply(&block->down, inner, x, rows, ADD);
    if (!block->norms_first)
        normalised(&block->last_norm, x, x, rows, sizes->width);
}

#endif
