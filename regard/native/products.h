/* x Wᵀ + b of rows x (N, I), for a weight (O, I) that is laid out beforehand.

   PANEL outputs stand beside each other: a panel is (I, PANEL), and the last one is filled up with zeros. A tile is TALL rows of
   one panel, whose sums stay in registers while all of I goes by. */

#ifndef PRODUCTS_H
#define PRODUCTS_H

#include "numbers.h"

#define TALL 6
#define PANEL (ACROSS * LANES)
#define NEAR (1 << 16) /* numbers of x that stay in a core's cache */

typedef struct {
    const REAL *weight; /* (panels, I, PANEL) */
    const REAL *bias;   /* (panels, PANEL) */
    Int inputs, outputs;
} Product;

typedef enum { PUT, ADD } Ending; /* a sum is put into its place, or added to what is there */

/* `tall` rows of one panel. `tall` and `ending` are known where it is compiled. */
INLINE void tile(const Int tall, const REAL *restrict x, Int stride, const REAL *restrict panel, const REAL *restrict bias,
                 Int inputs, REAL *out, Int out_stride, const Ending ending)
{
    Vector sum[TALL][ACROSS];
#pragma GCC unroll 8
    for (Int r = 0; r < tall; r++)
#pragma GCC unroll 8
        for (Int c = 0; c < ACROSS; c++)
            sum[r][c] = vector_at(bias + c * LANES);
    for (Int i = 0; i < inputs; i++) {
        Vector weight[ACROSS];
#pragma GCC unroll 8
        for (Int c = 0; c < ACROSS; c++)
            weight[c] = vector_at(panel + i * PANEL + c * LANES);
#pragma GCC unroll 8
        for (Int r = 0; r < tall; r++) {
            REAL number = x[r * stride + i];
#pragma GCC unroll 8
            for (Int c = 0; c < ACROSS; c++)
                sum[r][c] += number * weight[c];
        }
    }
#pragma GCC unroll 8
    for (Int r = 0; r < tall; r++)
#pragma GCC unroll 8
        for (Int c = 0; c < ACROSS; c++) {
            Vector *place = (Vector *)(out + r * out_stride + c * LANES);
            if (ending == ADD)
                sum[r][c] += *place;
            *place = sum[r][c];
        }
}

INLINE void tiles_of(Int tall, const REAL *x, Int stride, const REAL *panel, const REAL *bias, Int inputs, REAL *out,
                     Int out_stride, const Ending ending)
{
    switch (tall) {
    case 1: tile(1, x, stride, panel, bias, inputs, out, out_stride, ending); break;
    case 2: tile(2, x, stride, panel, bias, inputs, out, out_stride, ending); break;
    case 3: tile(3, x, stride, panel, bias, inputs, out, out_stride, ending); break;
    case 4: tile(4, x, stride, panel, bias, inputs, out, out_stride, ending); break;
    case 5: tile(5, x, stride, panel, bias, inputs, out, out_stride, ending); break;
    default: tile(TALL, x, stride, panel, bias, inputs, out, out_stride, ending); break;
    }
}

/* `tall` rows of the panel with this number, of which the last may be narrower than others. */
static void put_tile(const Product *p, Int number, Int tall, const REAL *x, Int stride, REAL *out, Int out_stride, Ending ending)
{
    const REAL *panel = p->weight + number * PANEL * p->inputs, *bias = p->bias + number * PANEL;
    Int first = number * PANEL, count = p->outputs - first;
    if (count >= PANEL) {
        if (ending == ADD)
            tiles_of(tall, x, stride, panel, bias, p->inputs, out + first, out_stride, ADD);
        else
            tiles_of(tall, x, stride, panel, bias, p->inputs, out + first, out_stride, PUT);
        return;
    }
    REAL narrow[TALL * PANEL];
    tiles_of(tall, x, stride, panel, bias, p->inputs, narrow, PANEL, PUT);
    for (Int r = 0; r < tall; r++)
        for (Int c = 0; c < count; c++) {
            REAL *place = out + r * out_stride + first + c;
            *place = ending == ADD ? *place + narrow[r * PANEL + c] : narrow[r * PANEL + c];
        }
}

INLINE Int panels_of(const Product *p) { return (p->outputs + PANEL - 1) / PANEL; }

INLINE Int least(Int a, Int b) { return a < b ? a : b; }

/* x (N, I) -> out (N, O), put there or added to what is there. */
INLINE void multiply(const Product *p, const REAL *x, REAL *out, Int rows, Ending ending)
{
    Int at_once = NEAR / (p->inputs + 1) / TALL * TALL + TALL;
    for (Int from = 0; from < rows; from += at_once)
        for (Int number = 0; number < panels_of(p); number++)
            for (Int row = from; row < least(rows, from + at_once); row += TALL)
                put_tile(p, number, least(TALL, rows - row), x + row * p->inputs, p->inputs, out + row * p->outputs, p->outputs,
                         ending);
}

#endif
