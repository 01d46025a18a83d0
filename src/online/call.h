/*
 * call.h - one call as bytes: what goes over a connection in pieces, and into a shared folder as a file.
 *
 *     u8[8] "MSPCALL" and 1, the version
 *     u64   number, step, rank
 *     text  name, reason, forward record, backward record       (u32 length, bytes)
 *     u32   number of tensors
 *     then each: text name, u8 dtype (msp_dtype), u8 dimensions, u16 0, u64 sizes, u64 bytes of elements,
 *     zeros up to a multiple of 16 from the beginning, the elements, row-major and little-endian
 * Nothing follows. The reader allocates one record per tensor, and no more tensors than there are bytes for.
 */
#ifndef MSP_ONLINE_CALL_H
#define MSP_ONLINE_CALL_H

#include "core/str.h"
#include "msprobe/online.h"

enum { MSP_CALL_NAME = 500 };

/* A call while it is sent: pieces of memory that lie behind each other. Tensors are those of mapped files. */
typedef struct msp_call_parts {
    msp_buf text; /* everything that is not elements */
    struct piece {
        const void *data; /* NULL: len bytes of text from at */
        size_t at, len;
    } * pieces;
    size_t npieces, cap;
    msp_tensor *tensors;
    size_t ntensors, tensors_cap;
    uint64_t size;
} msp_call_parts;

typedef struct msp_call_head {
    uint64_t number, step, rank;
    msp_str name, reason, forward, backward;
} msp_call_head;

/*
 * Put a call together. names are those of files in dir; each is mapped until release. Errors as msp_tensor_open(), with
 * the file's path. A zeroed msp_call_parts is empty, and release accepts it.
 */
MSP_CHECK msp_status msp_call_build(msp_call_parts *out, const msp_call_head *head, const char *dir,
                                    const msp_str *names, size_t nnames, msp_error *err);
void msp_call_release(msp_call_parts *c);

/* Up to room bytes from position at, as one span: *p and the result; 0 at the end. */
size_t msp_call_span(const msp_call_parts *c, uint64_t at, size_t room, const void **p);

#endif
