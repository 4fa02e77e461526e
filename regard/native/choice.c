/* The output layer, and what a search asks of its logits: one pass while they are written, and a glance at few of them later.

   A row of V logits is PANEL by PANEL. With each panel its greatest logit is kept, which bounds it from above whatever filters
   forbid later, and, where a search wants probabilities, the sum of its exponentials. The k best of a source then stand in the
   few panels whose bounds reach the k-th best that was found so far. */

#include "products.h"

/* Greatest logit and sum of exponentials of `count` logits of one panel, the sum into LANES sums of the row. The greatest is NaN
   where any is. */
static void digest_panel(const REAL *logits, Int count, REAL *maximum, REAL *sums)
{
    Int strange = 0;
    for (Int i = 0; i < count; i++)
        strange |= logits[i] != logits[i];
    *maximum = strange ? (REAL)NAN : greatest(logits, count);
    if (sums == NULL)
        return;
    REAL powers[PANEL];
    for (Int i = 0; i < count; i++)
        powers[i] = exp_of(logits[i]);
    for (Int i = count; i < PANEL; i++)
        powers[i] = 0;
    Vector sum = vector_at(sums);
    for (Int c = 0; c < ACROSS; c++)
        sum += vector_at(powers + c * LANES);
    memcpy(sums, &sum, sizeof(sum));
}

/* The log-sum-exp of a row: of the sum of its exponentials, where that neither overflows nor vanishes. */
static double norm_of(const REAL *sums, const REAL *logits, Int count)
{
    double sum = (double)sum_of(vector_at(sums)), most;
    if (sum > 1e-20 && sum < 1e30)
        return log(sum);
    most = (double)greatest(logits, count);
    sum = 0;
    if (most == -INFINITY)
        return sum_of(vector_at(sums)) == 0 ? most : NAN;
    for (Int i = 0; i < count; i++)
        sum += exp((double)logits[i] - most);
    most += log(sum);
    return most < INFINITY ? most : NAN; /* of logits that are no numbers */
}

Int regard_output_scratch(Int rows) { return rows * LANES; }

static REAL *cleared(REAL *sums, Int rows)
{
    if (sums != NULL)
        memset(sums, 0, rows * LANES * sizeof(REAL));
    return sums;
}

static void put_norms(const REAL *sums, const REAL *logits, Int rows, Int count, double *norms)
{
    for (Int row = 0; row < rows && sums != NULL; row++)
        norms[row] = norm_of(sums + row * LANES, logits + row * count, count);
}

/* x (N, D) -> logits (N, V), their panels' maxima (N, panels), and norms (N,) where `sums` (N, LANES) is there to compute in. */
void regard_output(const Product *p, const REAL *x, Int rows, REAL *logits, REAL *maxima, REAL *sums, double *norms)
{
    Int at_once = NEAR / (p->inputs + 1) / TALL * TALL + TALL, panels = panels_of(p);
    cleared(sums, rows);
    for (Int from = 0; from < rows; from += at_once)
        for (Int number = 0; number < panels; number++)
            for (Int row = from; row < least(rows, from + at_once); row += TALL) {
                Int tall = least(TALL, rows - row), count = least(PANEL, p->outputs - number * PANEL);
                put_tile(p, number, tall, x + row * p->inputs, p->inputs, logits + row * p->outputs, p->outputs, PUT);
                for (Int r = row; r < row + tall; r++)
                    digest_panel(logits + r * p->outputs + number * PANEL, count, maxima + r * panels + number,
                                 sums == NULL ? NULL : sums + r * LANES);
            }
    put_norms(sums, logits, rows, p->outputs, norms);
}

/* As `regard_output`, of logits (N, V) that are there. */
void regard_digest(const REAL *logits, Int rows, Int count, REAL *maxima, REAL *sums, double *norms)
{
    Int panels = (count + PANEL - 1) / PANEL;
    cleared(sums, rows);
    for (Int row = 0; row < rows; row++)
        for (Int number = 0; number < panels; number++)
            digest_panel(logits + row * count + number * PANEL, least(PANEL, count - number * PANEL), maxima + row * panels + number,
                         sums == NULL ? NULL : sums + row * LANES);
    put_norms(sums, logits, rows, count, norms);
}

/* A number found, put before those that are less; the last of k falls out. */
static void insert(double value, Int place, Int k, double *values, Int *places)
{
    Int i = k - 1;
    for (; i > 0 && values[i - 1] < value; i--) {
        values[i] = values[i - 1];
        places[i] = places[i - 1];
    }
    values[i] = value;
    places[i] = place;
}

/* The k greatest of logits (B, W, V) + offsets (B, W) of each source, and where in (W * V) they stand, each (B, k): greatest
   first, of equals the first; -inf where there are fewer. What is no number is passed over. */
void regard_best(const REAL *logits, const REAL *maxima, const double *offsets, Int sources, Int width, Int count, Int k,
                 double *values, Int *places)
{
    Int panels = (count + PANEL - 1) / PANEL;
    for (Int source = 0; source < sources; source++, values += k, places += k) {
        for (Int i = 0; i < k; i++) {
            values[i] = -INFINITY;
            places[i] = 0;
        }
        for (Int number = 0; number < width * panels; number++) {
            Int w = number / panels, row = source * width + w, first = (number - w * panels) * PANEL;
            double offset = offsets[row];
            if ((double)maxima[source * width * panels + number] + offset <= values[k - 1])
                continue;
            const REAL *some = logits + row * count;
            for (Int i = first; i < least(count, first + PANEL); i++)
                if ((double)some[i] + offset > values[k - 1])
                    insert((double)some[i] + offset, w * count + i, k, values, places);
        }
    }
}
