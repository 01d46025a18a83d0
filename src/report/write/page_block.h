/* page_block.h - bytes as a page carries them: byte planes, raw deflate, base64 in an element that never runs. */
#ifndef MSP_REPORT_PAGE_BLOCK_H
#define MSP_REPORT_PAGE_BLOCK_H

#include "core/str.h"
#include "msprobe/error.h"

/* n values of size bytes, one byte plane behind the other: planes of signs and exponents hardly change. */
void msp_page_add_planes(msp_buf *out, const void *values, size_t n, size_t size);

/*
 * *out becomes <script type="text/plain" data-block="name">base64 of deflate</script> and a newline; packed is room for
 * what stands between, kept for the next block. MSP_E_NOMEM, MSP_E_LIMIT (2 GiB and more).
 */
MSP_CHECK msp_status msp_page_block(msp_buf *out, msp_buf *packed, const char *name, msp_str bytes, msp_error *err);

#endif
