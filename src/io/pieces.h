/* pieces.h - the bytes of a tensor in row-major order, whatever its strides, without a copy of all of it. */
#ifndef MSP_IO_PIECES_H
#define MSP_IO_PIECES_H

#include "msprobe/tensor.h"

typedef msp_status msp_pieces_sink(const void *p, size_t n, void *payload, msp_error *err);

/*
 * Call sink with one piece after the other until all numel elements have been given, or it fails. A contiguous tensor
 * is one piece, straight from its memory; others are gathered through a buffer of 256 KiB.
 */
MSP_CHECK msp_status msp_tensor_pieces(const msp_tensor *t, msp_pieces_sink *sink, void *payload, msp_error *err);

#endif
