/* rows.c - see rows.h. How records become rows is in flatten.c. */
#include "compare/rows/rows.h"

#include "core/alloc.h"
#include "core/vec.h"
#include "msprobe/stats.h"

const char *
msp_row_state_text(msp_row_state s)
{
    static const char *const texts[] = {"input", "debug", "parameters", "output", "parameters_grad"};

    return texts[s];
}

bool
msp_val_number(const msp_val *v, double *out)
{
    switch (v->kind) {
    case VAL_INT:
        *out = (double)v->as.i;
        return true;
    case VAL_FLOAT:
        *out = v->as.f;
        return true;
    case VAL_TEXT:
        return msp_f64_parse((msp_str){v->as.p, v->len}, out);
    default:
        return false;
    }
}

bool
msp_rows_begin(msp_rows *t)
{
    *t = (msp_rows){0};
    if (!msp_vec_grow((void **)&t->texts, &t->cap_texts, 1, sizeof(*t->texts)))
        return false;
    t->texts[t->ntexts++] = (msp_row_text){MSP_STR("None"), -1, MSP_DTYPE_NONE};
    return true;
}

msp_row *
msp_rows_new(msp_rows *t)
{
    if (t->count >= UINT32_MAX - 1 || !msp_vec_grow((void **)&t->rows, &t->cap, t->count + 1, sizeof(*t->rows)))
        return NULL;
    t->rows[t->count] = (msp_row){0};
    return &t->rows[t->count];
}

bool
msp_rows_intern(msp_rows *t, msp_str s, uint32_t *id)
{
    msp_map_entry *e = msp_map_get(&t->text_ids, s);
    msp_row_text *text;
    char *copy;

    if (e != NULL) {
        *id = (uint32_t)e->value;
        return true;
    }
    copy = msp_arena_text(&t->arena, s.p, s.len);
    if (copy == NULL || !msp_vec_grow((void **)&t->texts, &t->cap_texts, t->ntexts + 1, sizeof(*t->texts)))
        return false;
    text = &t->texts[t->ntexts];
    *text = (msp_row_text){{copy, s.len}, -1, MSP_DTYPE_NONE};
    *id = (uint32_t)t->ntexts;
    if (msp_map_put(&t->text_ids, text->text, (int64_t)*id, NULL) == NULL)
        return false;
    t->ntexts++;
    return true;
}

void
msp_row_set_file(msp_row *r, msp_str file)
{
    size_t stem = file.len;

    while (stem > 1 && file.p[stem - 1] != '.')
        stem--;
    r->name = r->file = file.p;
    r->file_len = (uint32_t)file.len;
    r->name_len = (uint32_t)(stem > 1 ? stem - 1 : file.len);
}

bool
msp_row_set_checksum(msp_rows *t, msp_row *r, msp_str value)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t crc = msp_crc32_bytes(0, value.p, value.len);
    char hex[8], *text;

    for (int i = 0; i < 8; i++)
        hex[i] = digits[crc >> (28 - 4 * i) & 15];
    text = msp_arena_text(&t->arena, hex, 8);
    r->md5 = (msp_val){VAL_TEXT, 8, {.p = text}};
    return text != NULL;
}

void
msp_rows_release(msp_rows *t)
{
    msp_arena_release(&t->arena);
    msp_map_release(&t->text_ids);
    msp_free(t->rows);
    msp_free(t->apis);
    msp_free(t->texts);
    msp_free(t->p2p);
    msp_free(t->dtensors);
    *t = (msp_rows){0};
}
