/*
 * legacy.h - dumps of the older tools ptdbg_ascend (1.0 to 6.0) and torch_npu.hooks: text files named .pkl, one JSON
 * array per line.
 *
 * They are compared by msp_compare_run() like any other dump (msprobe/compare.h): a .pkl file, the folder of a rank, or
 * a whole {dump_tag}_v{version}, recognised by content. What only they have is in msp_legacy_options. A real Python
 * pickle is refused and never executed.
 */
#ifndef MSPROBE_LEGACY_H
#define MSPROBE_LEGACY_H

#include <stdbool.h>
#include <stddef.h>
#include "msprobe/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which tool's table is written. */
typedef enum msp_legacy_form {
    MSP_LEGACY_AUTO = 0, /* as the NPU file's lines say: HOOKS, PTDBG_6 for statistics with a norm, else PTDBG_2 */
    MSP_LEGACY_PTDBG_2,  /* the manual's: Cosine and MaxAbsErr; No when Cosine < 0.99 and MaxAbsErr > 0.001 */
    MSP_LEGACY_PTDBG_3,  /* 3.x: MaxRelativeErr too; also No when Cosine < 0.9 or MaxAbsErr > 1; types and shapes match
                          */
    MSP_LEGACY_PTDBG_6, /* 5.0 and 6.0: error ratios and norms too; statistics and checksums where there are no files */
    MSP_LEGACY_HOOKS    /* Cosine, RMSE, MAPE; no verdict */
} msp_legacy_form;

/* Beside msp_compare_options; a zeroed one has the defaults. All text is borrowed. */
typedef struct msp_legacy_options {
    msp_legacy_form form;
    const char *npu_dir, *bench_dir; /* of the .npy files, for two .pkl files; NULL: the folder named as the file
                                        without its .pkl */
    const char *suffix;              /* in the table's name after "compare_result"; NULL: none. "_" is put before it
                                        where it does not begin with one */
    const char *output_file;         /* one pair: exactly this file (csv), written over with a warning; NULL: in
                                        output_dir under a name with a time stamp */
    bool no_stack;                   /* no NPU_Stack_Info, even where the NPU file has stacks */
    bool shape_flag;                 /* torch_npu.hooks: types and shapes must agree for two operators to match */
} msp_legacy_options;

/*
 * What ptdbg_ascend.parse() prints: the stack and the statistics lines of every call whose name starts with prefix, in
 * the order of the file. sink gets the text piece by piece; false from it ends the reading with MSP_E_CANCELLED. A line
 * cut off at the end of the file is left out, with a warning.
 *
 * Returns MSP_E_NOT_FOUND or MSP_E_IO (no such file, unreadable), MSP_E_FORMAT (the message names file, line and what
 * is wrong there), MSP_E_UNSUPPORTED (a real pickle), MSP_E_NOMEM.
 */
typedef bool msp_legacy_sink(const char *text, size_t len, void *payload);

MSP_API MSP_CHECK msp_status msp_legacy_parse(const char *path, const char *prefix, msp_legacy_sink *sink,
                                              void *payload, msp_error *err);

/*
 * True when the file at path begins like a dump of these tools, or like a real pickle (so that what opens it can say
 * so). False for everything else, files that cannot be read included.
 */
MSP_API bool msp_legacy_is(const char *path);

#ifdef __cplusplus
}
#endif
#endif
