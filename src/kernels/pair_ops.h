/*
 * pair_ops.h - how the instances of pair_template.h write their operations: one line each.
 *
 * The including file defines TARGET first, and OP and UNROLL if functions are better not inlined and loops not
 * unrolled. Operands are called a and b. PARTS_* are for vectors that take several registers, or numbers, in an array
 * x: the expression is what x[i] becomes.
 */
#ifndef MSP_KERNELS_PAIR_OPS_H
#define MSP_KERNELS_PAIR_OPS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "kernels/prefetch.h"

#ifndef OP
#define OP     static inline __attribute__((always_inline)) TARGET
#define UNROLL _Pragma("GCC unroll 4")
#endif
#define EACH_PART(v) UNROLL for (size_t i = 0; i < sizeof((v).x) / sizeof((v).x[0]); i++)

#define OP_1(result, name, type, expression) \
    OP result name(type a)                   \
    {                                        \
        return expression;                   \
    }

#define OP_2(result, name, type, expression) \
    OP result name(type a, type b)           \
    {                                        \
        return expression;                   \
    }

#define PARTS_1(result, name, type, expression) \
    OP result name(type a)                      \
    {                                           \
        result r;                               \
                                                \
        EACH_PART(r) r.x[i] = expression;       \
        return r;                               \
    }

#define PARTS_2(result, name, type, expression) \
    OP result name(type a, type b)              \
    {                                           \
        result r;                               \
                                                \
        EACH_PART(r) r.x[i] = expression;       \
        return r;                               \
    }

#define PARTS_3(result, name, type_a, type, expression) \
    OP result name(type_a a, type b, type c)            \
    {                                                   \
        result r;                                       \
                                                        \
        EACH_PART(r) r.x[i] = expression;               \
        return r;                                       \
    }

#endif
