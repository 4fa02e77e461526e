/* Reading sources, and the newest token of each hypothesis through all blocks, whole, in one call.

   What is kept between two steps is described in regard/models/fast/slots.py: a slot for each token that was read, in which
   every layer keeps its key and value, and for each hypothesis which slots it sees. Here each query is given the list of
   slots that it sees, and reads keys and values where they lie. Some sources at a time go through all blocks, as many as
   leave their numbers in the cache of a core. Every function computes in places that it is given. */

#include "blocks.h"

#define AT_ONCE 96 /* tokens that go through the blocks together */

typedef struct {
    Int sources, width;            /* B, W */
    Int begin, end;                /* sources that this call computes: others may compute the rest meanwhile */
    Int first, room, rows;         /* slots filled before this step; slots and rows that there is room for */
    Int reach, memory_room, memory_rows; /* S; positions and rows of a memory that there is room for */
    Int band;                      /* how many positions back narrow layers see, the token itself included */
    const Int *ids;                /* (B, W) */
    const Int *row;                /* (B,) of each source; none: they stand in order */
    const Int *read;               /* (rows,) the position of the next token */
    const REAL *table;             /* (V, D) embeddings */
    double scale;                  /* of embeddings */
    const REAL *positions;         /* (positions, D) that are added, or none */
    const REAL *cosine, *sine;     /* (positions, E / 2) of turns, or none */
    REAL *past;                    /* (L, 2, rows, G, room, E) */
    REAL *visible;                 /* (rows, W, room) 0 where a hypothesis sees a slot, else -inf */
    Int *at;                       /* (rows, room) the position of each slot's token, or none */
    const REAL *memory;            /* (L, 2, memory rows, H, memory room, E), or none */
    const REAL *padding;           /* (rows, S) 0 where there is something to look at, else -inf, or none */
    REAL *scratch;                 /* as many numbers as `scratch_of` says */
    REAL *out;                     /* (B, W, D) */
} Step;

typedef struct {
    Sizes sizes;
    const Block *blocks;
    Norm last;
} Stack;

/* Where some tokens compute. */
typedef struct {
    REAL *normed, *parts, *seen, *scores;
    Int room;                            /* for the scores of one query */
    int32_t *slots, *near, *there;       /* (N, slots) what each token sees; also of narrow layers; (S,) of one source's memory */
    int32_t *count, *near_count;         /* (N,) */
} Places;

static Int most(Int a, Int b) { return a > b ? a : b; }

static Int parts_of(const Sizes *s) { return most((s->heads + 2 * s->groups) * s->each, s->inner); }

/* Numbers that `tokens` need, with lists of so many slots and positions of a memory. */
static Int numbers_for(const Sizes *s, Int tokens, Int slots, Int reach)
{
    return tokens * (s->width + parts_of(s) + s->heads * s->each + 2 * slots + 2) + TOGETHER * filled_up(most(slots, reach)) + reach;
}

static Places places_in(REAL *scratch, const Sizes *s, Int tokens, Int slots, Int reach)
{
    Places p;
    p.normed = scratch;
    p.parts = p.normed + tokens * s->width;
    p.seen = p.parts + tokens * parts_of(s);
    p.scores = p.seen + tokens * s->heads * s->each;
    p.room = filled_up(most(slots, reach));
    p.slots = (int32_t *)(p.scores + TOGETHER * p.room);
    p.near = p.slots + tokens * slots;
    p.count = p.near + tokens * slots;
    p.near_count = p.count + tokens;
    p.there = p.near_count + tokens;
    return p;
}

static Int at_once(const Step *step) { return most(1, AT_ONCE / step->width); }

Int regard_panel(void) { return PANEL; }

Int regard_step_scratch(const Stack *stack, const Step *step)
{
    return numbers_for(&stack->sizes, at_once(step) * step->width, step->first + step->width, step->reach);
}

void regard_multiply(const Product *p, const REAL *x, REAL *out, Int rows) { multiply(p, x, out, rows, PUT); }

/* --- One step */

static Int row_of(const Step *step, Int source) { return step->row == NULL ? source : step->row[source]; }

/* The vectors (W, D) of a source's newest tokens, at their position. */
static void embed(const Step *step, const Sizes *s, Int source)
{
    const REAL *added = step->positions == NULL ? NULL : step->positions + step->read[row_of(step, source)] * s->width;
    for (Int w = 0; w < step->width; w++) {
        const REAL *vector = step->table + step->ids[source * step->width + w] * s->width;
        REAL *x = step->out + (source * step->width + w) * s->width;
        for (Int i = 0; i < s->width; i++)
            x[i] = vector[i] * (REAL)step->scale;
        for (Int i = 0; added != NULL && i < s->width; i++)
            x[i] += added[i];
    }
}

/* Show each of a source's newest tokens its own slot, and list what it sees. `number` is that of the first among all in `p`. */
static void list_slots(const Step *step, Int source, Int number, const Places *p)
{
    Int row = row_of(step, source), end = step->first + step->width;
    Int *at = step->at == NULL ? NULL : step->at + row * step->room;
    for (Int w = 0; at != NULL && w < step->width; w++)
        at[step->first + w] = step->read[row];
    for (Int w = 0; w < step->width; w++) {
        REAL *visible = step->visible + (row * step->width + w) * step->room;
        int32_t *slots = p->slots + (number + w) * end, *near = p->near + (number + w) * end, count = 0, near_count = 0;
        for (Int other = 0; other < step->width; other++)
            visible[step->first + other] = other == w ? 0 : (REAL)-INFINITY;
        for (Int slot = 0; slot < end; slot++) {
            slots[count] = (int32_t)slot;
            count += visible[slot] == 0;
        }
        for (Int i = 0; at != NULL && i < count; i++) {
            near[near_count] = slots[i];
            near_count += at[slots[i]] > step->read[row] - step->band;
        }
        p->count[number + w] = count;
        p->near_count[number + w] = near_count;
    }
}

/* Keys and values of a source's newest tokens into their slots, and what each of its queries sees of all: (W, H E). */
static void look_back(const Step *step, const Block *block, const Sizes *s, Int layer, Int source, Int number, const Places *p)
{
    Int each = s->each, row = row_of(step, source), end = step->first + step->width, position = step->read[row];
    Int across = (s->heads + 2 * s->groups) * each, shared = s->heads / s->groups, of_group = step->room * each;
    REAL *keys = step->past + ((2 * layer) * step->rows + row) * s->groups * of_group;
    REAL *values = keys + step->rows * s->groups * of_group;
    for (Int w = 0; w < step->width; w++) {
        REAL *queries = p->parts + (number + w) * across, *newest = queries + s->heads * each;
        if (step->cosine != NULL)
            turn(queries, step->cosine + position * (each / 2), step->sine + position * (each / 2), s->heads + s->groups, each);
        for (Int g = 0; g < s->groups; g++) {
            Int slot = g * of_group + (step->first + w) * each;
            memcpy(keys + slot, newest + g * each, each * sizeof(REAL));
            memcpy(values + slot, newest + (s->groups + g) * each, each * sizeof(REAL));
        }
    }
    Waiting waiting = {.number = 0};
    for (Int head = 0; head < s->heads; head++)
        for (Int w = 0; w < step->width; w++) {
            Int token = number + w, group = head / shared * of_group;
            const int32_t *slots = (block->narrow ? p->near : p->slots) + token * end;
            Query query = {p->parts + token * across + head * each, keys + group, values + group, slots,
                           block->narrow ? p->near_count[token] : p->count[token], p->seen + (token * s->heads + head) * each};
            wait_for(&waiting, query, head + 1 == s->heads && w + 1 == step->width, each, each, p->scores, p->room);
        }
}

/* What the queries of a source, in `parts`, see of its memory: (W, H E). */
static void look_there(const Step *step, const Sizes *s, Int layer, Int source, Int number, const Places *p)
{
    Int each = s->each, row = row_of(step, source), of_head = step->memory_room * each, count = 0;
    const REAL *keys = step->memory + (2 * layer * step->memory_rows + row) * s->heads * of_head;
    const REAL *values = keys + step->memory_rows * s->heads * of_head;
    for (Int i = 0; i < step->reach; i++) {
        p->there[count] = (int32_t)i;
        count += step->padding == NULL || step->padding[row * step->reach + i] == 0;
    }
    Waiting waiting = {.number = 0};
    for (Int head = 0; head < s->heads; head++)
        for (Int w = 0; w < step->width; w++) {
            Int place = ((number + w) * s->heads + head) * each;
            Query query = {p->parts + place, keys + head * of_head, values + head * of_head, p->there, count, p->seen + place};
            wait_for(&waiting, query, head + 1 == s->heads && w + 1 == step->width, each, each, p->scores, p->room);
        }
}

/* Tokens of some sources through one block: x (N, D), in place. */
static void through(const Step *step, const Block *block, const Sizes *s, Int layer, Int from, Int to, const Places *p)
{
    Int rows = (to - from) * step->width, width = s->width;
    REAL *x = step->out + from * step->width * width;
    const REAL *read = block->norms_first ? normalised(&block->own_norm, x, p->normed, rows, width) : x;
    multiply(&block->project, read, p->parts, rows, PUT);
    for (Int source = from; source < to; source++)
        look_back(step, block, s, layer, source, (source - from) * step->width, p);
    multiply(&block->join, p->seen, x, rows, ADD);
    if (!block->norms_first)
        normalised(&block->own_norm, x, x, rows, width);
    if (block->crosses) {
        read = block->norms_first ? normalised(&block->cross_norm, x, p->normed, rows, width) : x;
        multiply(&block->ask, read, p->parts, rows, PUT);
        for (Int source = from; source < to; source++)
            look_there(step, s, layer, source, (source - from) * step->width, p);
        multiply(&block->reply, p->seen, x, rows, ADD);
        if (!block->norms_first)
            normalised(&block->cross_norm, x, x, rows, width);
    }
    feed_forward(block, s, x, rows, p->normed, p->parts);
}

/* The newest tokens (B, W) of sources `begin` to `end` through all blocks and the last norm: their rows of `out` (B, W, D). */
void regard_step(const Stack *stack, const Step *step)
{
    const Sizes *s = &stack->sizes;
    Places p = places_in(step->scratch, s, at_once(step) * step->width, step->first + step->width, step->reach);
    for (Int from = step->begin; from < step->end; from += at_once(step)) {
        Int to = least(step->end, from + at_once(step));
        for (Int source = from; source < to; source++) {
            embed(step, s, source);
            list_slots(step, source, (source - from) * step->width, &p);
        }
        for (Int layer = 0; layer < s->layers; layer++)
            through(step, stack->blocks + layer, s, layer, from, to, &p);
        REAL *x = step->out + from * step->width * s->width;
        normalised(&stack->last, x, x, (to - from) * step->width, s->width);
    }
}

/* --- Sources: all tokens of one see each other */

/* Sources to read: of B rows of S vectors each, the first so many. */
typedef struct {
    Int sources, longest;      /* B, S */
    const Int *lengths;        /* (B,) */
    const REAL *cosine, *sine; /* (S, E / 2) of turns, or none */
    REAL *vectors;             /* (B, S, D), read and written */
    REAL *scratch;             /* as many numbers as `regard_read_scratch` says */
} Sources;

Int regard_read_scratch(const Stack *stack, const Sources *sources)
{
    Int tokens = most(AT_ONCE, sources->longest);
    return tokens * stack->sizes.width + numbers_for(&stack->sizes, tokens, 1, sources->longest);
}

/* What the queries of one source, tokens `first` and so on of those in `parts`, see of each other. */
static void look_around(const Sources *sources, const Sizes *s, Int first, Int length, const Places *p)
{
    Int each = s->each, heads = s->heads, across = 3 * heads * each;
    REAL *parts = p->parts + first * across;
    for (Int i = 0; sources->cosine != NULL && i < length; i++)
        turn(parts + i * across, sources->cosine + i * (each / 2), sources->sine + i * (each / 2), 2 * heads, each);
    Waiting waiting = {.number = 0};
    for (Int head = 0; head < heads; head++)
        for (Int i = 0; i < length; i++) {
            const REAL *keys = parts + (heads + head) * each, *values = keys + heads * each;
            Query query = {parts + i * across + head * each, keys, values, p->there, length,
                           p->seen + ((first + i) * heads + head) * each};
            wait_for(&waiting, query, head + 1 == heads && i + 1 == length, each, across, p->scores, p->room);
        }
}

/* Tokens of some sources, one behind the other, through all blocks and the last norm: x (N, D), in place. */
static void read_some(const Stack *stack, const Sources *sources, Int from, Int to, REAL *x, Int rows, const Places *p)
{
    const Sizes *s = &stack->sizes;
    for (Int layer = 0; layer < s->layers; layer++) {
        const Block *block = stack->blocks + layer;
        const REAL *read = block->norms_first ? normalised(&block->own_norm, x, p->normed, rows, s->width) : x;
        multiply(&block->project, read, p->parts, rows, PUT);
        for (Int source = from, first = 0; source < to; first += sources->lengths[source++])
            look_around(sources, s, first, sources->lengths[source], p);
        multiply(&block->join, p->seen, x, rows, ADD);
        if (!block->norms_first)
            normalised(&block->own_norm, x, x, rows, s->width);
        feed_forward(block, s, x, rows, p->normed, p->parts);
    }
    normalised(&stack->last, x, x, rows, s->width);
}

/* Some sources at a time: their vectors, one behind the other, into x (N, D); gives the source behind them. */
static Int gather(const Sources *sources, Int from, Int tokens, Int width, REAL *x, Int *rows)
{
    Int to = from;
    for (*rows = 0; to < sources->sources && (to == from || *rows + sources->lengths[to] <= tokens); to++) {
        Int length = sources->lengths[to];
        memcpy(x + *rows * width, sources->vectors + to * sources->longest * width, length * width * sizeof(REAL));
        *rows += length;
    }
    return to;
}

/* The vectors of each source through all blocks and the last norm, in place; what stands behind is left as it is. */
void regard_read(const Stack *stack, const Sources *sources)
{
    const Sizes *s = &stack->sizes;
    Int tokens = most(AT_ONCE, sources->longest), rows;
    REAL *x = sources->scratch;
    Places p = places_in(x + tokens * s->width, s, tokens, 1, sources->longest);
    for (Int i = 0; i < sources->longest; i++)
        p.there[i] = (int32_t)i;
    for (Int from = 0, to; from < sources->sources; from = to) {
        to = gather(sources, from, tokens, s->width, x, &rows);
        read_some(stack, sources, from, to, x, rows, &p);
        for (Int source = from, first = 0; source < to; first += sources->lengths[source++])
            memcpy(sources->vectors + source * sources->longest * s->width, x + first * s->width,
                   sources->lengths[source] * s->width * sizeof(REAL));
    }
}

Int regard_remember_scratch(const Sizes *s, const Sources *sources)
{
    return most(AT_ONCE, sources->longest) * (s->width + 2 * s->layers * s->heads * s->each);
}

/* Keys and values of every layer for each vector: memory (L, 2, B, H, S, E), of which nothing but these is written. */
void regard_remember(const Product *product, const Sizes *s, const Sources *sources, REAL *memory)
{
    Int tokens = most(AT_ONCE, sources->longest), each = s->each, rows, of_head = sources->longest * each;
    REAL *x = sources->scratch, *parts = x + tokens * s->width; /* (N, L, 2, H, E) */
    for (Int from = 0, to; from < sources->sources; from = to) {
        to = gather(sources, from, tokens, s->width, x, &rows);
        multiply(product, x, parts, rows, PUT);
        const REAL *part = parts;
        for (Int source = from; source < to; source++)
            for (Int i = 0; i < sources->lengths[source]; i++)
                for (Int side = 0; side < 2 * s->layers; side++)
                    for (Int head = 0; head < s->heads; head++, part += each) {
                        Int place = (side * sources->sources + source) * s->heads + head;
                        memcpy(memory + place * of_head + i * each, part, each * sizeof(REAL));
                    }
    }
}
