/*
 * pt_write.c - one tensor as torch.save() writes it; see pt.c for the format.
 *
 * The pickle is written opcode by opcode in protocol 2, which every torch reads with weights_only=True. Types that have
 * a storage class of their own take the form that torch has written since 0.4; float8 and the wide unsigned integers,
 * which only newer torch knows, take its newer form with an untyped storage. requires_grad is never set: a file holds
 * values. The archive's directory has a fixed name and no date, so equal tensors give equal files.
 */
#include "msprobe/tensor.h"

#include "core/file.h"
#include "core/pool.h"
#include "core/str.h"
#include "io/bytes.h"
#include "io/pieces.h"
#include "io/torch_pickle.h"
#include "io/zip.h"
#include "msprobe/stats.h"

enum {
    MODE = 0640,
    DATA_ALIGN = 64,
    THREADS_FROM_BYTES = 1 << 19, /* below, waking one costs more than it saves */
    ONE_WRITE_BELOW = 1 << 19     /* from here on a pass for the checksum alone costs more than another write */
};

static void
add_global(msp_buf *b, const char *module, const char *name)
{
    msp_buf_printf(b, "c%s\n%s\n", module, name);
}

static void
add_text(msp_buf *b, const char *text)
{
    unsigned char head[5] = {'X'};

    store_u32(head + 1, (uint32_t)strlen(text));
    msp_buf_add(b, head, sizeof(head));
    msp_buf_text(b, text);
}

/* BININT1, BININT2, BININT or LONG1: the shortest that holds v, which is not negative. */
static void
add_int(msp_buf *b, int64_t v)
{
    unsigned char p[10] = {0};
    size_t n;

    store_u64(p + 2, (uint64_t)v);
    n = v < 1 << 8 ? 1 : v < 1 << 16 ? 2 : v <= INT32_MAX ? 4 : 8;
    p[1] = n == 1 ? 'K' : n == 2 ? 'M' : 'J';
    if (n < 8) {
        msp_buf_add(b, p + 1, n + 1);
        return;
    }
    p[0] = 0x8a;
    p[1] = 8;
    msp_buf_add(b, p, sizeof(p));
}

static void
add_dims(msp_buf *b, const int64_t *dims, int32_t n)
{
    static const char short_tuples[] = {')', '\x85', '\x86', '\x87'};

    if (n > 3)
        msp_buf_char(b, '(');
    for (int32_t i = 0; i < n; i++)
        add_int(b, dims[i]);
    msp_buf_char(b, n > 3 ? 't' : short_tuples[n]);
}

/* ("storage", class, "0", "cpu", size) as a persistent id. */
static void
add_storage(msp_buf *b, const msp_tensor *t)
{
    const char *name = msp_torch_storage_name(t->dtype);

    msp_buf_char(b, '(');
    add_text(b, "storage");
    if (name != NULL)
        add_global(b, "torch", name);
    else
        add_global(b, "torch.storage", "UntypedStorage");
    add_text(b, "0");
    add_text(b, "cpu");
    add_int(b, name != NULL ? t->numel : t->numel * (int64_t)msp_dtype_size(t->dtype));
    msp_buf_text(b, "tQ");
}

static void
add_pickle(msp_buf *b, const msp_tensor *t)
{
    bool typed = msp_torch_storage_name(t->dtype) != NULL;
    msp_tensor flat;

    if (msp_tensor_view(&flat, NULL, t->dtype, t->ndim, t->shape, NULL) != MSP_OK)
        b->failed = true;
    msp_buf_text(b, "\x80\x02");
    add_global(b, "torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    msp_buf_char(b, '(');
    add_storage(b, t);
    add_int(b, 0);
    add_dims(b, t->shape, t->ndim);
    add_dims(b, flat.strides, t->ndim);
    msp_buf_char(b, '\x89'); /* requires_grad */
    add_global(b, "collections", "OrderedDict");
    msp_buf_text(b, ")R"); /* hooks */
    if (!typed)
        add_global(b, "torch", msp_dtype_torch_name(t->dtype) + strlen("torch."));
    msp_buf_text(b, "tR.");
}

static msp_status
write_entry(msp_zip_writer *w, const char *name, msp_str data, msp_error *err)
{
    msp_status st = msp_zip_writer_begin(w, msp_str_of(name), data.len, DATA_ALIGN, err);

    if (st == MSP_OK)
        st = msp_zip_writer_data(w, data.p, data.len, err);
    return st == MSP_OK ? msp_zip_writer_end(w, err) : st;
}

static msp_status
write_piece(const void *p, size_t n, void *payload, msp_error *err)
{
    return msp_zip_writer_data(payload, p, n, err);
}

static msp_status
write_raw_piece(const void *p, size_t n, void *payload, msp_error *err)
{
    return msp_zip_writer_raw(payload, p, n, err);
}

/* Elements that several threads read at the same time. */
typedef struct element_job {
    msp_zip_writer *w;
    const msp_tensor *t;
    msp_stats *stats;
    uint32_t crc;
    msp_status st;
    msp_error *err;
} element_job;

enum { PART_WRITE, PART_CHECKSUM, PART_STATS, PARTS };

static void
run_part(size_t part, void *payload)
{
    element_job *j = payload;

    if (part == PART_WRITE)
        j->st = msp_tensor_pieces(j->t, write_raw_piece, j->w, j->err);
    else if (part == PART_CHECKSUM)
        j->crc = msp_crc32(j->t);
    else
        msp_stats_compute(j->stats, j->t);
}

/*
 * The copy into the page cache is what takes longest, and the file system lets one thread at a time do it. The checksum
 * stands behind the data, so that others can make it meanwhile.
 */
static msp_status
share_elements(msp_zip_writer *w, const msp_tensor *t, msp_stats *stats, msp_error *err)
{
    element_job j = {w, t, stats, 0, MSP_OK, err};

    msp_pool_run(stats == NULL ? PARTS - 1 : PARTS, 0, run_part, &j);
    w->crc = j.crc;
    return j.st;
}

static msp_status
write_alone(msp_zip_writer *w, const msp_tensor *t, msp_stats *stats, msp_error *err)
{
    const size_t size = (size_t)t->numel * msp_dtype_size(t->dtype);

    if (stats != NULL)
        msp_stats_compute(stats, t);
    if (size < ONE_WRITE_BELOW && msp_tensor_is_contiguous(t))
        return msp_zip_writer_lend(w, t->data, size, err);
    return msp_tensor_pieces(t, write_piece, w, err);
}

static msp_status
write_elements(msp_zip_writer *w, const msp_tensor *t, msp_stats *stats, bool share, msp_error *err)
{
    uint64_t size = (uint64_t)t->numel * msp_dtype_size(t->dtype);
    msp_status st = msp_zip_writer_begin(w, MSP_STR("archive/data/0"), size, DATA_ALIGN, err);

    if (st == MSP_OK)
        st = (share && size >= THREADS_FROM_BYTES ? share_elements : write_alone)(w, t, stats, err);
    return st == MSP_OK ? msp_zip_writer_end(w, err) : st;
}

static msp_status
write_archive(msp_file *f, const msp_tensor *t, msp_stats *stats, bool share, msp_error *err)
{
    const uint16_t one = 1;
    bool big = *(const unsigned char *)&one == 0;
    msp_zip_writer w;
    msp_buf pickle = {0};
    msp_status st;

    msp_zip_writer_init(&w, f);
    add_pickle(&pickle, t);
    st = msp_buf_status(&pickle, err);
    if (st == MSP_OK)
        st = write_entry(&w, "archive/data.pkl", msp_buf_view(&pickle), err);
    if (st == MSP_OK)
        st = write_entry(&w, "archive/byteorder", big ? MSP_STR("big") : MSP_STR("little"), err);
    if (st == MSP_OK)
        st = write_elements(&w, t, stats, share, err);
    if (st == MSP_OK)
        st = write_entry(&w, "archive/version", MSP_STR("3\n"), err);
    if (st == MSP_OK)
        st = msp_zip_writer_finish(&w, err);
    msp_buf_release(&pickle);
    msp_zip_writer_release(&w);
    return st;
}

static msp_status
save_tensor(const char *path, const msp_tensor *t, msp_stats *stats, bool share, msp_error *err)
{
    msp_file f;
    msp_status st;

    if (t->dtype == MSP_DTYPE_NONE || t->dtype >= MSP_DTYPE_COUNT)
        return msp_error_set(err, MSP_E_INVALID, "%s: a tensor without a type cannot be saved", path);
    st = msp_file_create(&f, path, MODE, err);
    if (st != MSP_OK)
        return st;
    st = msp_file_reserve(&f, (uint64_t)t->numel * msp_dtype_size(t->dtype), err);
    if (st == MSP_OK)
        st = write_archive(&f, t, stats, share, err);
    if (st == MSP_OK)
        return msp_file_commit(&f, err);
    if (st == MSP_E_NOMEM) /* other errors come from the file, which names itself */
        msp_error_prefix(err, st, "%s: ", path);
    msp_file_abandon(&f);
    return st;
}

msp_status
msp_pt_save(const char *path, const msp_tensor *t, msp_error *err)
{
    return save_tensor(path, t, NULL, false, err);
}

msp_status
msp_pt_save_measured(const char *path, const msp_tensor *t, msp_stats *stats, msp_error *err)
{
    return save_tensor(path, t, stats, true, err);
}
