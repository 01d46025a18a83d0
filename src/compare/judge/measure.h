/* measure.h - how far the two sides of a row are apart. */
#ifndef MSP_COMPARE_MEASURE_H
#define MSP_COMPARE_MEASURE_H

#include "compare/judge/judged.h"
#include "compare/layout/whole.h"

/* Differences and relative errors of the four statistics. j->b must be set. */
void msp_measure_stats(msp_judged *j);

typedef struct msp_measurer {
    const char *dirs[2];       /* where the tensor files of NPU and bench lie */
    int fds[2];                /* the same, open; -1: there is none */
    bool open_to_all[2];       /* others can reach the files there, so each is looked at before it is read */
    bool values;               /* torch_npu.hooks: a row's file is the text of its values itself */
    int threads;               /* for one large tensor */
    const msp_whole *whole[2]; /* what the rows' parts are; NULL: they have none */
} msp_measurer;

/*
 * The six metrics of the tensors behind the row. Where they cannot be had the words in their place and a sentence at
 * the end of j->message say why; j->unreadable is set when it was a file. May be called from several threads at once.
 */
void msp_measure_tensors(const msp_measurer *m, msp_judged *j);

/* The six metrics of two tensors that are open, as above. */
void msp_measure_opened(const msp_measurer *m, msp_judged *j, const msp_tensor *n, const msp_tensor *b);

/*
 * The tensor of a row that is being judged, of one side, from the bytes that were read ahead or from its file. It is to
 * be released unless this fails.
 */
MSP_CHECK msp_status msp_measure_take(msp_tensor *out, const msp_measurer *m, int side, const msp_judged *j,
                                      msp_error *err);

/* Was the file of a row's tensor, which is open and was read, cut short meanwhile? Then what was read may be zeros. */
bool msp_measure_is_cut(const msp_measurer *m, int side, const msp_row *r, const msp_tensor *t);

/* Was the file of either side of a row cut short? j->cut says which. */
bool msp_measure_note_cut(const msp_measurer *m, msp_judged *j, const msp_tensor *n, const msp_tensor *b);

/* Open the tensor file of a row: of the NPU side (0) or the bench side (1). An empty *out stays so when this fails. */
MSP_CHECK msp_status msp_measure_open(msp_tensor *out, const msp_measurer *m, int side, const msp_row *r,
                                      msp_error *err);

#endif
