/* formats.c - see formats.h. */
#include "compare/run/formats.h"

const msp_outputs_format msp_outputs_formats[MSP_OUTPUTS_FORMATS] = {
    {MSP_COMPARE_XLSX, MSP_TABLE_XLSX, "xlsx"},
    {MSP_COMPARE_CSV, MSP_TABLE_CSV, "csv"},
    {MSP_COMPARE_JSON, MSP_TABLE_JSON, "json"},
};
