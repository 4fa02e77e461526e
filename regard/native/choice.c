/* The output layer, and what a search asks of its logits: one pass while they are written, and a glance at few of them later.

   A row of V logits is PANEL by PANEL. With each panel its greatest logit is kept, which bounds all from above whatever filters
   forbid later, and, where a search wants probabilities, the sum of its exponentials. The k best of a source then stand in the
   few panels whose bounds reach the k-th best that was found so far. */

#include "products.h"

/* A bound of the logits of one panel, and the sum of their exponentials, into LANES sums of the row. The bound is infinite where
   anything is no number. */
INLINE void digest(const REAL *logits, REAL *bound, REAL *sums)
{
    Vector most = (Vector){0} - (REAL)INFINITY, all = {0};
    for (Int c = 0; c < ACROSS; c++) {
        most = greater(vector_at(logits + c * LANES), most);
        all += vector_at(logits + c * LANES);
    }
    /* also infinite where infinities of both signs are: a bound all the same */
    *bound = greatest_of(either(all == all, most, (Vector){0} + (REAL)INFINITY));
    if (sums == NULL)
        return;
    Vector sum = vector_at(sums);
    for (Int c = 0; c < ACROSS; c++) {
        REAL powers[BYTES / sizeof(REAL)];
        for (Int lane = 0; lane < LANES; lane++)
            powers[lane] = exp_of(logits[c * LANES + lane]);
        sum += vector_at(powers);
    }
    *(Vector *)sums = sum;
}

/* One panel of a row: its digest, and its logits from where they were computed to their place, if that is elsewhere. The last
   panel may be narrower than others. */
INLINE void put_panel(const REAL *near, REAL *logits, Int count, Int number, REAL *bounds, REAL *sums)
{
    Int left = count - number * PANEL;
    if (left >= PANEL) {
        digest(near, bounds + number, sums);
        for (Int c = 0; c < ACROSS && logits != NULL; c++)
            *(Vector *)(logits + number * PANEL + c * LANES) = vector_at(near + c * LANES);
        return;
    }
    REAL filled[PANEL];
    for (Int i = 0; i < PANEL; i++)
        filled[i] = i < left ? near[i] : (REAL)-INFINITY;
    digest(filled, bounds + number, sums);
    for (Int i = 0; i < left && logits != NULL; i++)
        logits[number * PANEL + i] = near[i];
}

/* The log-sum-exp of a row: of the sum of its exponentials, where that neither overflows nor vanishes. */
static double norm_of(const REAL *sums, const REAL *logits, Int count)
{
    double sum = (double)sum_of(vector_at(sums)), most;
    if (sum > 1e-20 && sum < 1e30)
        return log(sum);
    most = (double)greatest(logits, count);
    if (most == -INFINITY || sum != sum)
        return sum == sum ? most : NAN;
    sum = 0;
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

/* x (N, D) -> logits (N, V), their panels' bounds (N, panels), and norms (N,) where `sums` (N, LANES) is there to compute in. */
void regard_output(const Product *p, const REAL *x, Int rows, REAL *logits, REAL *bounds, REAL *sums, double *norms)
{
    Int at_once = NEAR / (p->inputs + 1) / TALL * TALL + TALL, panels = panels_of(p);
    REAL near[TALL * PANEL]; /* logits on their way: what is read again is not waited for */
    cleared(sums, rows);
    for (Int from = 0; from < rows; from += at_once)
        for (Int number = 0; number < panels; number++)
            for (Int row = from; row < least(rows, from + at_once); row += TALL) {
                Int tall = least(TALL, rows - row);
                tiles_of(tall, x + row * p->inputs, p->inputs, p->weight + number * PANEL * p->inputs, p->bias + number * PANEL,
                         p->inputs, near, PANEL, PUT);
                for (Int r = 0; r < tall; r++)
                    put_panel(near + r * PANEL, logits + (row + r) * p->outputs, p->outputs, number, bounds + (row + r) * panels,
                              sums == NULL ? NULL : sums + (row + r) * LANES);
            }
    put_norms(sums, logits, rows, p->outputs, norms);
}

/* As `regard_output`, of logits (N, V) that are there. */
void regard_digest(const REAL *logits, Int rows, Int count, REAL *bounds, REAL *sums, double *norms)
{
    Int panels = (count + PANEL - 1) / PANEL;
    cleared(sums, rows);
    for (Int row = 0; row < rows; row++)
        for (Int number = 0; number < panels; number++)
            put_panel(logits + row * count + number * PANEL, NULL, count, number, bounds + row * panels,
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

/* One source's numbers found, and what it has: k values with their places; logits (W, V), bounds (W, panels), offsets (W,). */
typedef struct {
    const REAL *logits, *bounds;
    const double *offsets;
    Int width, count, panels, k;
    double *values;
    Int *places;
} Search;

static void clear(const Search *s)
{
    for (Int i = 0; i < s->k; i++) {
        s->values[i] = -INFINITY;
        s->places[i] = 0;
    }
}

/* The k-th greatest bound: as many numbers are as great, unless a filter forbids them. */
static double cut_of(const Search *s)
{
    clear(s);
    for (Int w = 0; w < s->width; w++)
        for (Int number = 0; number < s->panels; number++) {
            double bound = (double)s->bounds[w * s->panels + number] + s->offsets[w];
            if (bound > s->values[s->k - 1])
                insert(bound, 0, s->k, s->values, s->places);
        }
    return s->values[s->k - 1];
}

/* The k greatest among the panels whose bounds reach the cut. */
static void search(const Search *s, double cut)
{
    clear(s);
    for (Int w = 0; w < s->width; w++)
        for (Int number = 0; number < s->panels; number++) {
            double offset = s->offsets[w], bound = (double)s->bounds[w * s->panels + number] + offset;
            if (bound < cut || bound <= s->values[s->k - 1])
                continue;
            for (Int i = w * s->count + number * PANEL; i < w * s->count + least(s->count, (number + 1) * PANEL); i++)
                if ((double)s->logits[i] + offset > s->values[s->k - 1])
                    insert((double)s->logits[i] + offset, i, s->k, s->values, s->places);
        }
}

/* Where the greatest logit of each row (N, V) stands, of equals the first; gives 0 where anything may be no number. */
Int regard_greatest(const REAL *logits, const REAL *bounds, Int rows, Int count, Int *places)
{
    Int panels = (count + PANEL - 1) / PANEL;
    for (Int i = 0; i < rows * panels; i++)
        if (!(bounds[i] < (REAL)INFINITY))
            return 0;
    double offset = 0, value;
    for (Int row = 0; row < rows; row++) {
        Search s = {logits + row * count, bounds + row * panels, &offset, 1, count, panels, 1, &value, places + row};
        double cut = cut_of(&s);
        search(&s, cut);
        if (value < cut)
            search(&s, -INFINITY);
    }
    return 1;
}

/* The k greatest of logits (B, W, V) + offsets (B, W) of each source, and where in (W * V) they stand, each (B, k): greatest
   first, of equals the first; -inf where there are fewer. What is no number is passed over. */
void regard_best(const REAL *logits, const REAL *bounds, const double *offsets, Int sources, Int width, Int count, Int k,
                 double *values, Int *places)
{
    Int panels = (count + PANEL - 1) / PANEL;
    for (Int source = 0; source < sources; source++) {
        Int row = source * width;
        Search s = {logits + row * count, bounds + row * panels, offsets + row, width, count, panels, k, values + source * k,
                    places + source * k};
        double cut = cut_of(&s);
        search(&s, cut);
        if (s.values[k - 1] < cut) /* some of the greatest were forbidden */
            search(&s, -INFINITY);
    }
}
