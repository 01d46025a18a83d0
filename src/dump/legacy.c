/* legacy.c - see legacy.h. */
#include "dump/legacy.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/log.h"
#include "core/vec.h"

/* ---- recognising ------------------------------------------------------------------------------------------------- */

static bool
is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static size_t
skip_space(msp_str s, size_t i)
{
    while (i < s.len && is_space(s.p[i]))
        i++;
    return i;
}

bool
msp_legacy_is_text(const char *text, size_t size)
{
    size_t i = 0;

    while (i < size && (is_space(text[i]) || text[i] == '\n'))
        i++;
    if (i == size || text[i] != '[')
        return false;
    i = skip_space((msp_str){text, size}, i + 1);
    return i < size && text[i] == '"';
}

/*
 * Is it a real pickle? Protocol 2 and later begin with 0x80 and the protocol's number; 0 and 1 with an opcode that
 * starts no JSON.
 */
static bool
is_pickle(const char *text, size_t size)
{
    static const char *const old[] = {"(lp", "(dp", "]q\001", "}q\001", "]q\000", "}q\000", "ccopy_reg\n", "(i"};

    if (size >= 2 && (unsigned char)text[0] == 0x80 && (unsigned char)text[1] <= 5)
        return true;
    for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
        size_t n = old[i][1] == 'q' ? 3 : strlen(old[i]);

        if (size >= n && memcmp(text, old[i], n) == 0)
            return true;
    }
    return false;
}

bool
msp_legacy_is(const char *path)
{
    char head[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    ssize_t n = -1;

    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        n = read(fd, head, sizeof(head));
    close(fd);
    return n > 0 && (msp_legacy_is_text(head, (size_t)n) || is_pickle(head, (size_t)n));
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static const msp_str STACK_INFO = MSP_STR("stack_info");

/* Where the last "<separator>word" begins that is followed by "." or the end; 0: nowhere. */
static size_t
find_last_word(msp_str name, msp_str word)
{
    for (size_t i = name.len < word.len ? 0 : name.len - word.len; i > 0; i--) {
        size_t end = i + word.len;

        if ((name.p[i - 1] == '_' || name.p[i - 1] == '.') && memcmp(name.p + i, word.p, word.len) == 0 &&
            (end == name.len || name.p[end] == '.'))
            return i - 1;
    }
    return 0;
}

msp_str
msp_legacy_call(msp_str name)
{
    static const msp_str words[] = {MSP_STR("stack_info"), MSP_STR("input"), MSP_STR("output")};
    size_t last = 0;

    for (size_t i = 0; i < 3; i++) {
        size_t at = find_last_word(name, words[i]);

        last = at > last ? at : last;
    }
    return last > 0 ? (msp_str){name.p, last} : name;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* The parser has seen one line only, and calls it line 1. */
static msp_status
wrong_json(const msp_legacy_reader *r, msp_status st, msp_error *err)
{
    char reason[sizeof(((msp_error *)0)->message)];
    unsigned long long column, byte;
    int at = 0;

    if (err == NULL || st == MSP_E_NOMEM)
        return st;
    memcpy(reason, err->message, sizeof(reason));
    if (sscanf(reason, "line 1, column %llu (byte %llu): %n", &column, &byte, &at) == 2 && at > 0)
        return msp_error_set(err, st, "%s: line %zu, column %llu: %s", r->path, r->line, column, reason + at);
    return msp_error_set(err, st, "%s: line %zu: %s", r->path, r->line, reason);
}

static msp_status
wrong_line(const msp_legacy_reader *r, msp_error *err, const char *what)
{
    return msp_error_set(err, MSP_E_FORMAT, "%s: line %zu: %s; no line of ptdbg_ascend or torch_npu.hooks", r->path,
                         r->line, what);
}

/* The end of the string that begins at i, past its closing quote; 0 when it has none. */
static size_t
string_end(msp_str s, size_t i)
{
    for (i++; i < s.len; i++) {
        if (s.p[i] == '\\')
            i++;
        else if (s.p[i] == '"')
            return i + 1;
    }
    return 0;
}

/* Where the list of values begins that follows the name, or 0 when something else does. */
static size_t
list_after_name(msp_str line)
{
    size_t i = skip_space(line, 0), end;

    if (i == line.len || line.p[i] != '[')
        return 0;
    i = skip_space(line, i + 1);
    if (i == line.len || line.p[i] != '"' || (end = string_end(line, i)) == 0)
        return 0;
    if (msp_str_ends((msp_str){line.p + i + 1, end - i - 2}, STACK_INFO))
        return 0;
    i = skip_space(line, end);
    if (i == line.len || line.p[i] != ',')
        return 0;
    i = skip_space(line, i + 1);
    return i < line.len && line.p[i] == '[' ? i : 0;
}

static msp_status
parse_line(msp_legacy_reader *r, msp_str text, msp_error *err)
{
    msp_status st;

    msp_json_doc_release(&r->doc);
    st = msp_json_parse_in(&r->doc, r->room, sizeof(r->room), text.p, text.len, err);
    return st == MSP_OK ? MSP_OK : wrong_json(r, st, err);
}

static bool
is_shape(const msp_json *v)
{
    return msp_json_kind_of(v) == MSP_JSON_ARRAY || msp_json_kind_of(v) == MSP_JSON_STRING;
}

/* The line with 0 in place of its value list is parsed; the list itself stays text. */
static msp_status
read_values(msp_legacy_reader *r, msp_legacy_line *out, size_t list, msp_error *err)
{
    const char *end = memchr(out->text.p + list, ']', out->text.len - list);
    const msp_json *root;
    msp_str behind, name;
    msp_status st;

    if (end == NULL)
        return wrong_line(r, err, "the list of values has no end");
    out->kind = LEGACY_VALUES;
    out->values = (msp_str){out->text.p + list, (size_t)(end + 1 - out->text.p) - list};
    behind = (msp_str){end + 1, out->text.len - list - out->values.len};
    msp_buf_clear(&r->scratch);
    msp_buf_add(&r->scratch, out->text.p, list);
    msp_buf_char(&r->scratch, '0');
    msp_buf_str(&r->scratch, behind);
    st = msp_buf_status(&r->scratch, err);
    if (st == MSP_OK)
        st = parse_line(r, msp_buf_view(&r->scratch), err);
    if (st != MSP_OK)
        return st;
    root = r->doc.root;
    out->dtype = msp_json_at(root, 2);
    out->shape = msp_json_at(root, 3);
    if (msp_json_count(root) < 4 || msp_json_kind_of(out->dtype) != MSP_JSON_STRING || !is_shape(out->shape))
        return wrong_line(r, err, "after a list of values type and shape must follow");
    name = msp_json_string(msp_json_at(root, 0));
    /* the copy begins as the line does: a name without escapes is where it was */
    if (name.p >= r->scratch.p && name.p < r->scratch.p + list)
        name.p = out->text.p + (name.p - r->scratch.p);
    out->name = name;
    return MSP_OK;
}

static msp_status
read_stack(const msp_legacy_reader *r, msp_legacy_line *out, msp_error *err)
{
    out->kind = LEGACY_STACK;
    out->frames = msp_json_at(r->doc.root, 1);
    if (!msp_str_ends(out->name, STACK_INFO) || msp_json_kind_of(out->frames) != MSP_JSON_ARRAY)
        return wrong_line(r, err, "two elements must be a name ending in stack_info and a list of frames");
    return MSP_OK;
}

static msp_status
read_tensor(const msp_legacy_reader *r, msp_legacy_line *out, msp_error *err)
{
    const msp_json *root = r->doc.root, *stats = msp_json_at(root, 5);

    out->kind = LEGACY_TENSOR;
    out->checksum = msp_json_at(root, 2);
    out->dtype = msp_json_at(root, 3);
    out->shape = msp_json_at(root, 4);
    out->stats = msp_json_kind_of(stats) == MSP_JSON_ARRAY ? stats : NULL;
    if (!msp_json_to_i64(msp_json_at(root, 1), &out->step))
        return wrong_line(r, err, "the second element must be a whole number");
    if (msp_json_kind_of(out->dtype) != MSP_JSON_STRING || !is_shape(out->shape))
        return wrong_line(r, err, "the fourth element must be a type, the fifth a shape");
    if (out->step <= 100 && msp_json_count(out->stats) < 3)
        return wrong_line(r, err, "the sixth element must be a list of at least three statistics");
    return MSP_OK;
}

static msp_status
read_whole_line(msp_legacy_reader *r, msp_legacy_line *out, msp_error *err)
{
    size_t list = list_after_name(out->text), n;
    msp_status st;

    *out = (msp_legacy_line){.text = out->text, .number = out->number, .like = LEGACY_NONE};
    st = list > 0 ? read_values(r, out, list, err) : parse_line(r, out->text, err);
    if (list > 0 || st != MSP_OK)
        return st;
    n = msp_json_count(r->doc.root);
    if (msp_json_kind_of(r->doc.root) != MSP_JSON_ARRAY ||
        msp_json_kind_of(msp_json_at(r->doc.root, 0)) != MSP_JSON_STRING)
        return wrong_line(r, err, "must be a JSON array that begins with a name");
    out->name = msp_json_string(msp_json_at(r->doc.root, 0));
    if (n == 2)
        return read_stack(r, out, err);
    if (n != 5 && n != 6)
        return wrong_line(r, err, "must have 2, 4, 5 or 6 elements");
    return read_tensor(r, out, err);
}

/* ---- lines that are like one before ------------------------------------------------------------------------------ */

/* Does a name mean what stands in the file, and can nothing be wrong with it? No way out of the loop: it is short. */
static bool
is_plain(msp_str name)
{
    bool odd = false;

    for (size_t i = 0; i < name.len; i++)
        odd |= name.p[i] < ' ' || name.p[i] > '~' || name.p[i] == '\\';
    return !odd;
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Behind the JSON float at p, or NULL when something else stands there, or one with an exponent. */
static const char *
read_float(const char *p, const char *end, double *out)
{
    const char *next = msp_f64_scan(p, end, out), *digits = p + (*p == '-'), *point = digits;

    while (is_digit(*point))
        point++;
    if (next == NULL || *point != '.' || point == digits || next == point + 1 || (*digits == '0' && point > digits + 1))
        return NULL;
    return next;
}

/* "[1.5, -0.25, 0.5]", as many as statistics can be. */
static bool
read_statistics(msp_legacy_line *out, msp_str list)
{
    const char *p = list.p + 1, *end = list.p + list.len - 1;

    for (out->nnumbers = 0; p != NULL && out->nnumbers < LEGACY_STATS; p += 2) {
        p = read_float(p, end, &out->numbers[out->nnumbers]);
        if (p == NULL)
            return false;
        out->nnumbers++;
        if (p == end)
            return out->nnumbers >= 3;
        if (end - p < 3 || p[0] != ',' || p[1] != ' ')
            return false;
    }
    return false;
}

/*
 * Cut a line as the tools write it, ["name", ..., into name, numbers and the rest: what stands behind the values, or
 * between name and statistics. False for all others. Nothing but the rest can then be wrong with it: where one such
 * line is right, all are that have its rest.
 */
static bool
take_apart(msp_legacy_line *out, msp_str *rest)
{
    msp_str line = out->text, name = {line.p + 2, 0};
    const char *end = line.p + line.len, *quote, *list, *close;

    quote = msp_str_starts(line, MSP_STR("[\"")) ? memchr(name.p, '"', line.len - 2) : NULL;
    if (quote == NULL || end - quote < 8)
        return false;
    name.len = (size_t)(quote - name.p);
    if (!is_plain(name) || msp_str_ends(name, STACK_INFO))
        return false;
    if (memcmp(quote, "\", [", 4) == 0) {
        list = quote + 3;
        close = memchr(list, ']', (size_t)(end - list));
        if (close == NULL)
            return false;
        *rest = (msp_str){close + 1, (size_t)(end - close - 1)};
        out->kind = LEGACY_VALUES;
        out->values = (msp_str){list, (size_t)(close + 1 - list)};
        out->nnumbers = 0;
    } else {
        list = memrchr(quote, '[', (size_t)(end - quote));
        if (list == NULL || end - list < 4 || memcmp(end - 2, "]]", 2) != 0)
            return false;
        *rest = (msp_str){quote + 1, (size_t)(list - quote - 1)};
        out->kind = LEGACY_TENSOR;
        if (!read_statistics(out, (msp_str){list, (size_t)(end - 1 - list)}))
            return false;
    }
    out->name = name;
    return true;
}

/* Where such a rest would be. It has the type in its middle and the shape behind that. */
static msp_legacy_known *
known_of(msp_legacy_reader *r, msp_str rest)
{
    uint64_t middle, last;

    if (rest.len < 2 * sizeof(last))
        return NULL;
    memcpy(&middle, rest.p + rest.len / 2, sizeof(middle));
    memcpy(&last, rest.p + rest.len - sizeof(last), sizeof(last));
    return &r->known[((3 * middle ^ last) * 0x9E3779B97F4A7C15u) >> 56]; /* LEGACY_KNOWN places */
}

static msp_status
read_line(msp_legacy_reader *r, msp_legacy_line *out, msp_error *err)
{
    msp_legacy_known *known = NULL;
    msp_status st = MSP_OK;
    msp_str rest;

    if (r->known != NULL && take_apart(out, &rest))
        known = known_of(r, rest);
    if (known != NULL && msp_str_eq(known->rest, rest)) {
        out->like = known->line;
    } else {
        /* as the cut has it: only then is the rest what it takes it for */
        msp_legacy_kind kind = known != NULL ? out->kind : LEGACY_STACK;

        st = read_whole_line(r, out, err);
        if (st == MSP_OK && known != NULL && out->kind == kind &&
            (kind == LEGACY_VALUES || (out->stats != NULL && out->step <= 100)))
            *known = (msp_legacy_known){rest, r->tensors};
    }
    r->tensors += st == MSP_OK && out->kind != LEGACY_STACK;
    return st;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Space that a crashed file system gave to the file but never filled. */
static size_t
without_zeros(const char *text, size_t size)
{
    while (size > 0 && text[size - 1] == '\0')
        size--;
    return size;
}

static bool
is_blank(msp_str line)
{
    return skip_space(line, 0) == line.len;
}

/* The line at r->at; *ended: there is a newline after it. */
static msp_str
take_line(msp_legacy_reader *r, bool *ended)
{
    const char *p = r->text + r->at, *end = memchr(p, '\n', r->size - r->at);
    msp_str line = {p, end != NULL ? (size_t)(end - p) : r->size - r->at};

    *ended = end != NULL;
    r->at += line.len + (end != NULL);
    r->line++;
    return line;
}

static msp_status
begin_reading(msp_legacy_reader *r, msp_error *err)
{
    size_t size = without_zeros(r->text, r->size);

    if (is_pickle(r->text, r->size))
        return msp_error_set(err, MSP_E_UNSUPPORTED,
                             "%s: this is a Python pickle, which is never loaded, for that can run any code; a .pkl of "
                             "ptdbg_ascend or torch_npu.hooks is text, one JSON array per line",
                             r->path);
    if (size < r->size) {
        if (!r->quiet && r->text[0] == '[') /* else it is no such file at all */
            msp_warning("%s: %zu zero bytes at its end are left out: was the machine stopped while it was written?",
                        r->path, r->size - size);
        r->size = size;
        r->cut = true;
    }
    return MSP_OK;
}

msp_status
msp_legacy_next(msp_legacy_reader *r, msp_legacy_line *out, bool *more, msp_error *err)
{
    msp_status st = r->at == 0 && r->size > 0 ? begin_reading(r, err) : MSP_OK;
    bool ended;

    *more = false;
    while (st == MSP_OK && r->at < r->size) {
        out->text = take_line(r, &ended);
        out->number = r->line;
        if (is_blank(out->text))
            continue;
        st = read_line(r, out, err);
        if (st == MSP_E_FORMAT && !ended) {
            if (!r->quiet)
                msp_warning("%s: the last line (%zu) is torn and left out; the %zu before it are used", r->path,
                            r->line, r->line - 1);
            r->cut = true;
            return MSP_OK;
        }
        *more = st == MSP_OK;
        break;
    }
    return st;
}

void
msp_legacy_reader_release(msp_legacy_reader *r)
{
    msp_json_doc_release(&r->doc);
    msp_buf_release(&r->scratch);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* JSON's true and false are Python's 1 and 0 where a number is wanted. */
static bool
to_number(msp_str s, double *out)
{
    if (msp_f64_parse(s, out))
        return true;
    *out = s.len == 4;
    return msp_str_eq(s, MSP_STR("true")) || msp_str_eq(s, MSP_STR("false"));
}

/* The item at `from` that is no plain decimal; *next: behind it and the blanks that follow. */
static bool
read_odd_item(const char *from, const char *end, const char **next, double *out)
{
    const char *p = memchr(from, ',', (size_t)(end - from));

    p = p != NULL ? p : end;
    *next = p;
    while (p > from && is_space(p[-1]))
        p--;
    return to_number((msp_str){from, (size_t)(p - from)}, out);
}

/* The items from *at on, as many as fit; false when one is no number: then *n is how many came before it. */
static bool
read_items(const char *from, const char **at, const char *end, double *v, size_t *n, size_t cap)
{
    const char *p = *at, *next;

    while (p < end && *n < cap) {
        *n += msp_f64_scan_list(from, &p, end, v + *n, cap - *n);
        if (*n == cap)
            break;
        while (p < end && is_space(*p))
            p++;
        next = msp_f64_scan(p, end, &v[*n]);
        while (next != NULL && next < end && is_space(*next))
            next++;
        if ((next == NULL || (next < end && *next != ',')) && !read_odd_item(p, end, &next, &v[*n]))
            return false;
        ++*n;
        p = next == end ? end : next + 1;
        if (next < end && p == end)
            return false; /* a comma, and nothing behind it */
    }
    *at = p;
    return true;
}

static msp_status
no_number(double *v, size_t n, msp_error *err)
{
    msp_free(v);
    return msp_error_set(err, MSP_E_FORMAT, "value %zu of the list is no number", n + 1);
}

msp_status
msp_legacy_values(double **out, size_t *count, msp_str list, msp_error *err)
{
    const char *at = list.p + 1, *end = list.p + list.len - 1;
    size_t size = list.len - 2, n = 0, cap = 0;
    double *v = NULL;

    *out = NULL;
    *count = 0;
    while (at < end && is_space(*at))
        at++;
    while (at < end) {
        if (n / 2 > (size + msp_reader_extra() / 2) / sizeof(*v) / 3) { /* it grows by half */
            msp_free(v);
            return msp_error_set(err, MSP_E_LIMIT, "more than %zu short values take more memory than their text", n);
        }
        /* about twenty characters each is what Python writes; the growth rule does the rest */
        if (!msp_vec_grow((void **)&v, &cap, n == 0 ? size / 20 + 1 : n + 1, sizeof(*v))) {
            msp_free(v);
            return msp_error_set(err, MSP_E_NOMEM, "out of memory for more than %zu values", n);
        }
        if (!read_items(list.p, &at, end, v, &n, cap))
            return no_number(v, n, err);
    }
    *out = v;
    *count = n;
    return MSP_OK;
}

static void
free_values(void *owner)
{
    msp_free(owner);
}

msp_status
msp_legacy_open_values(msp_tensor *out, msp_str text, msp_error *err)
{
    size_t count;
    double *values;
    int64_t shape;
    msp_status st = msp_legacy_values(&values, &count, text, err);

    if (st != MSP_OK)
        return st;
    shape = (int64_t)count;
    st = msp_tensor_view(out, values, MSP_F64, 1, &shape, err);
    out->owner = values;
    out->release_owner = free_values;
    return st;
}
