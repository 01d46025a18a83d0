/* npy_write.c - one tensor as numpy.save() writes it; see npy.c for the format. */
#include "msprobe/tensor.h"

#include "core/file.h"
#include "core/str.h"
#include "io/bytes.h"
#include "io/npy.h"
#include "io/pieces.h"

enum { MODE = 0640, PREFIX_SIZE = 10, DATA_ALIGN = 64 };

void
msp_npy_header(msp_buf *b, const msp_tensor *t)
{
    const size_t start = b->len;
    const uint16_t one = 1;
    char order = msp_dtype_size(t->dtype) == 1 ? '|' : *(const unsigned char *)&one == 1 ? '<' : '>';

    msp_buf_add(b, "\x93NUMPY\1\0\0\0", PREFIX_SIZE);
    msp_buf_printf(b, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", order, msp_npy_code(t->dtype));
    for (int32_t i = 0; i < t->ndim; i++)
        msp_buf_printf(b, "%s%lld", i > 0 ? ", " : "", (long long)t->shape[i]);
    msp_buf_text(b, t->ndim == 1 ? ",), }" : "), }");
    while ((b->len - start + 1) % DATA_ALIGN != 0 && !b->failed)
        msp_buf_char(b, ' ');
    msp_buf_char(b, '\n');
    if (!b->failed) /* 64 dimensions of 19 digits are far from the 65535 that version 1 can tell */
        store_u16(b->p + start + PREFIX_SIZE - 2, (uint16_t)(b->len - start - PREFIX_SIZE));
}

static msp_status
write_piece(const void *p, size_t n, void *payload, msp_error *err)
{
    return msp_file_write(payload, p, n, err);
}

msp_status
msp_npy_save(const char *path, const msp_tensor *t, msp_error *err)
{
    msp_buf header = {0};
    msp_file f;
    msp_status st;

    if (msp_npy_code(t->dtype) == NULL)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "%s: NumPy has no type for %s: convert to float32, or save a .pt",
                             path, msp_dtype_torch_name(t->dtype));
    st = msp_file_create(&f, path, MODE, err);
    if (st != MSP_OK)
        return st;
    msp_npy_header(&header, t);
    st = msp_buf_status(&header, err);
    if (st == MSP_OK)
        st = msp_file_reserve(&f, (uint64_t)t->numel * msp_dtype_size(t->dtype), err);
    if (st == MSP_OK)
        st = msp_file_write(&f, header.p, header.len, err);
    if (st == MSP_OK)
        st = msp_tensor_pieces(t, write_piece, &f, err);
    msp_buf_release(&header);
    if (st == MSP_OK)
        return msp_file_commit(&f, err);
    if (st == MSP_E_NOMEM) /* other errors come from the file, which names itself */
        msp_error_prefix(err, st, "%s: ", path);
    msp_file_abandon(&f);
    return st;
}
