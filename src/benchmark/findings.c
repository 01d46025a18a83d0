/*
 * findings.c - the rows of free_benchmark.csv and free_benchmark_bits.csv.
 *
 * UTF-8 without a mark, lines end in CR LF, as the original tool writes them. A row is one write to a file opened for
 * appending: whoever is killed leaves whole rows. One process writes a file.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/locale.h"
#include "core/number.h"
#include "msprobe/benchmark.h"

static const char title[] = "rank,pert_mode,stage,step,api_name,max_rel,dtype,shape,output_index\r\n";
static const char bits_title[] =
    "rank,stage,step,api_name,dtype,shape,output_index,bits_kept,bits_of_worst_element,bits_of_type\r\n";

enum { ROW_BYTES = 8192 };

typedef struct row {
    char text[ROW_BYTES];
    size_t len;
} row;

static void
add_text(row *r, const char *text)
{
    size_t len = strlen(text), room = sizeof(r->text) - r->len;

    if (len > room)
        len = room;
    memcpy(r->text + r->len, text, len);
    r->len += len;
}

/* Names of APIs are a program's: what would end a cell is quoted, and what a table would calculate is made text. */
static void
add_cell(row *r, const char *text)
{
    bool formula = strchr("=+-@", text[0]) != NULL && text[0] != '\0';
    bool quoted = formula || strpbrk(text, ",\"\r\n") != NULL;

    add_text(r, quoted ? "\"" : "");
    add_text(r, formula ? "'" : "");
    for (char c[2] = {0}; (c[0] = *text) != '\0'; text++)
        add_text(r, c[0] == '"' ? "\"\"" : c);
    add_text(r, quoted ? "\"," : ",");
}

static void
add_integer(row *r, int64_t v)
{
    char buf[MSP_INT_TEXT_MAX];

    msp_i64_text(buf, v);
    add_text(r, buf);
}

static void
add_number(row *r, double v)
{
    char buf[32];

    msp_f64_repr(buf, v);
    add_text(r, buf);
}

static void
add_shape(row *r, const msp_tensor *t)
{
    add_text(r, "\"torch.Size([");
    for (int32_t d = 0; d < t->ndim; d++) {
        add_text(r, d > 0 ? ", " : "");
        add_integer(r, t->shape[d]);
    }
    add_text(r, "])\",");
}

static void
add_place(row *r, const msp_finding *f)
{
    add_text(r, f->stage);
    add_text(r, ",");
    add_integer(r, f->step);
    add_text(r, ",");
    add_cell(r, f->api);
}

static void
add_output(row *r, const msp_finding *f)
{
    add_text(r, msp_dtype_torch_name(f->output->dtype));
    add_text(r, ",");
    add_shape(r, f->output);
    if (f->output_index >= 0)
        add_integer(r, f->output_index);
}

/* Write all of it, or leave the file as it was. */
static msp_status
write_whole(int fd, off_t size, const row *r, msp_error *err)
{
    ssize_t n;

    do
        n = write(fd, r->text, r->len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)r->len)
        return MSP_OK;
    if (n > 0) {
        errno = ENOSPC;
        if (ftruncate(fd, size) != 0)
            return msp_error_set_errno(err, MSP_E_IO, errno, "cannot take back half a row");
    }
    return msp_error_set_errno(err, MSP_E_IO, errno, "cannot write");
}

static msp_status
append(const char *path, const char *first_line, row *r, msp_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    row whole = {.len = 0};
    struct stat st;
    msp_status status;

    if (fd < 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s", path);
    if (fstat(fd, &st) != 0)
        st.st_size = 0;
    if (st.st_size == 0)
        add_text(&whole, first_line);
    if (r->len >= sizeof(r->text))
        r->len = sizeof(r->text) - 2; /* a name of thousands of bytes: cut, and the line ends all the same */
    memcpy(r->text + r->len, "\r\n", 2);
    r->len += 2;
    r->len = r->len < sizeof(whole.text) - whole.len ? r->len : sizeof(whole.text) - whole.len;
    memcpy(whole.text + whole.len, r->text, r->len);
    whole.len += r->len;
    status = write_whole(fd, st.st_size, &whole, err);
    if (close(fd) != 0 && status == MSP_OK)
        status = msp_error_set_errno(err, MSP_E_IO, errno, "cannot write");
    return status == MSP_OK ? MSP_OK : msp_error_prefix(err, status, "%s: ", path);
}

msp_status
msp_finding_write(const char *path, const msp_finding *f, msp_error *err)
{
    row r = {.len = 0};

    add_integer(&r, f->rank);
    add_text(&r, ",");
    add_text(&r, f->mode);
    add_text(&r, ",");
    add_place(&r, f);
    if (f->ratio.flips)
        add_text(&r, "symbol_flipping");
    else
        add_number(&r, f->ratio.ratio - 1);
    add_text(&r, ",");
    add_output(&r, f);
    return append(path, title, &r, err);
}

msp_status
msp_finding_write_bits(const char *path, const msp_finding *f, msp_error *err)
{
    char buf[64];
    row r = {.len = 0};

    add_integer(&r, f->rank);
    add_text(&r, ",");
    add_place(&r, f);
    add_output(&r, f);
    msp_snprintf(buf, sizeof(buf), ",%.1f,%.1f,%d", f->bits->kept, f->bits->worst, f->bits->type);
    add_text(&r, buf);
    return append(path, bits_title, &r, err);
}
