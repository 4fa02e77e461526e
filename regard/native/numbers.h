/* Numbers, vectors of them, and functions of one number.

   All is written once for REAL, which is float or double. A Vector is as wide as the processor's registers; compilers turn its
   operators into single instructions (GCC and clang know them alike, on x86 and on ARM), and the loops without it below into
   such vectors by themselves. Sums are written out, as a compiler may not change their order: so a row gives the same bits
   whatever stands beside it. NaN and infinity are numbers like others here: nothing is compiled as if they did not exist. */

#ifndef NUMBERS_H
#define NUMBERS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef REAL
#define REAL float
#endif

#if defined(__AVX512F__)
#define BYTES 64
#define ACROSS 4 /* vectors beside each other in a panel of weights (products.h): 6 x 4 sums fill the registers */
#elif defined(__AVX__)
#define BYTES 32
#define ACROSS 2
#else
#define BYTES 16
#define ACROSS 4
#endif

#define LANES (BYTES / (Int)sizeof(REAL))
#define INLINE static inline __attribute__((always_inline))
#define IS_DOUBLE (sizeof(REAL) == 8)

typedef int64_t Int;
typedef REAL Vector __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef REAL Half __attribute__((vector_size(BYTES / 2), aligned(sizeof(REAL)), may_alias));

typedef __typeof__(((Vector){0}) > ((Vector){0})) Mask; /* a comparison, lane by lane */

INLINE Vector vector_at(const REAL *x) { return *(const Vector *)x; }

/* The sum of the numbers in a vector, halves added to halves. */
INLINE REAL sum_of(Vector v)
{
    REAL left[BYTES / 2 / sizeof(REAL)];
    Half half = ((const Half *)&v)[0] + ((const Half *)&v)[1];
    memcpy(left, &half, sizeof(left));
    for (Int count = LANES / 4; count > 0; count /= 2)
        for (Int i = 0; i < count; i++)
            left[i] += left[i + count];
    return left[0];
}

/* Sum of x[i] y[i]. */
INLINE REAL dot(const REAL *x, const REAL *y, Int count)
{
    Vector sum = {0};
    Int i = 0;
    for (; i + LANES <= count; i += LANES)
        sum += vector_at(x + i) * vector_at(y + i);
    REAL found = sum_of(sum);
    for (; i < count; i++)
        found += x[i] * y[i];
    return found;
}

/* Sum of x[i]. */
INLINE REAL total(const REAL *x, Int count)
{
    Vector sum = {0};
    Int i = 0;
    for (; i + LANES <= count; i += LANES)
        sum += vector_at(x + i);
    REAL found = sum_of(sum);
    for (; i < count; i++)
        found += x[i];
    return found;
}

/* Lane by lane a where `chosen` says so (all bits), else b. */
INLINE Vector either(Mask chosen, Vector a, Vector b) { return (Vector)(((Mask)a & chosen) | ((Mask)b & ~chosen)); }

/* The greater of two, lane by lane; of a NaN and a number, the second. */
INLINE Vector greater(Vector a, Vector b) { return either(a > b, a, b); }

/* The greatest number in a vector. */
INLINE REAL greatest_of(Vector v)
{
    REAL left[BYTES / 2 / sizeof(REAL)];
    for (Int i = 0; i < LANES / 2; i++)
        left[i] = v[i] > v[i + LANES / 2] ? v[i] : v[i + LANES / 2];
#pragma GCC unroll 4
    for (Int count = LANES / 4; count > 0; count /= 2)
#pragma GCC unroll 8
        for (Int i = 0; i < count; i++)
            left[i] = left[i] > left[i + count] ? left[i] : left[i + count];
    return left[0];
}

/* The greatest of x[i], -inf of none. What is no number is passed over. */
INLINE REAL greatest(const REAL *x, Int count)
{
    Vector most = (Vector){0} - (REAL)INFINITY;
    Int i = 0;
    for (; i + LANES <= count; i += LANES)
        most = greater(vector_at(x + i), most);
    REAL found = greatest_of(most);
    for (; i < count; i++)
        found = x[i] > found ? x[i] : found;
    return found;
}

/* exp(x) = 2^n exp(r), n the nearest whole number to x / ln 2; exp(r) by the polynomial of Cephes (Moshier), to 1.5 units in the
   last place. Beyond, it stays at 3e-33 and 2e38: what is 1 / count of the least must not be
   subnormal, or a processor takes as long as for forty others. Of NaN it is NaN. */
INLINE float exp_of_float(float x)
{
    x = x < -75.0f ? -75.0f : x;
    x = x > 88.3f ? 88.3f : x;
    float n = __builtin_rintf(x * 1.44269504088896341f);
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23; /* of 2^n */
    float power;
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

INLINE REAL exp_of(REAL x) { return IS_DOUBLE ? (REAL)exp(x) : (REAL)exp_of_float((float)x); }

/* erf of a float by Abramowitz and Stegun, formula 7.1.26, to 1.5e-7. */
INLINE float erf_of_float(float x)
{
    float size = x < 0 ? -x : x, t = 1.0f / (1.0f + 0.3275911f * size);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float found = 1.0f - p * t * exp_of_float(-size * size);
    return x < 0 ? -found : found;
}

INLINE REAL erf_of(REAL x) { return IS_DOUBLE ? (REAL)erf(x) : (REAL)erf_of_float((float)x); }

INLINE REAL tanh_of(REAL x) { return IS_DOUBLE ? (REAL)tanh(x) : 1 - 2 / (exp_of(2 * x) + 1); }

INLINE REAL silu_of(REAL x) { return x / (1 + exp_of(-x)); }

INLINE REAL gelu_of(REAL x) { return x / 2 * (1 + erf_of(x * (REAL)0.70710678118654752440)); }

INLINE REAL gelu_tanh_of(REAL x)
{
    return x / 2 * (1 + tanh_of((REAL)0.79788456080286535588 * (x + (REAL)0.044715 * x * x * x)));
}

#endif
