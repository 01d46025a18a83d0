/* formats.h - every format that tables are written in, in the order in which they are opened. */
#ifndef MSP_COMPARE_FORMATS_H
#define MSP_COMPARE_FORMATS_H

#include "msprobe/compare.h"
#include "msprobe/table.h"

typedef struct msp_outputs_format {
    unsigned bit; /* MSP_COMPARE_* */
    msp_table_format format;
    const char *ext;
} msp_outputs_format;

enum { MSP_OUTPUTS_FORMATS = 3 };
extern const msp_outputs_format msp_outputs_formats[MSP_OUTPUTS_FORMATS];

#endif
