/* pow10.c - see pow10.h. */
#include "core/pow10.h"

const msp_pow10 msp_pow10_table[MSP_POW10_MAX - MSP_POW10_MIN + 1] = {
#include "core/pow10_table.h"
};
