/* show_parts.c - see show.h: text, numbers, frames and indices, for a person and as JSON. */
#include <math.h>
#include "show.h"

static char *
copy_of(msp_look_text t)
{
    char *copy = malloc(t.len + 1);

    if (copy != NULL) {
        if (t.len > 0)
            memcpy(copy, t.p, t.len);
        copy[t.len] = '\0';
    }
    return copy;
}

void
msp_show_text(FILE *out, msp_style style, msp_look_text t)
{
    char *copy = copy_of(t);

    put_safe(out, style, copy != NULL ? copy : "?");
    free(copy);
}

void
msp_show_json_text(msp_jsonout *j, const char *key, msp_look_text t)
{
    char *copy = t.p != NULL ? copy_of(t) : NULL;

    msp_jsonout_text(j, key, copy);
    free(copy);
}

void
msp_show_label(char *buf, size_t size, const msp_dump_place *place)
{
    snprintf(buf, size, "%s%s%s%s%s", place->group, place->group[0] != '\0' && place->step_name[0] != '\0' ? "/" : "",
             place->step_name, place->step_name[0] != '\0' && place->rank_name[0] != '\0' ? "/" : "", place->rank_name);
}

const char *
msp_show_number(char buf[32], double v)
{
    snprintf(buf, 32, "%.5g", v);
    return buf;
}

const char *
msp_show_digits(char buf[32], double v)
{
    snprintf(buf, 32, "%.12g", v);
    return buf;
}

void
msp_show_cell(FILE *out, msp_cell c)
{
    char number[32];

    switch (c.kind) {
    case MSP_CELL_TEXT:
        msp_show_text(out, MSP_STYLE_PLAIN, (msp_look_text){c.as.text.p, c.as.text.len});
        break;
    case MSP_CELL_INT:
        fprintf(out, "%lld", (long long)c.as.i);
        break;
    case MSP_CELL_FLOAT:
        msp_show_digits(number, c.as.f);
        msp_term_put(out, isfinite(c.as.f) ? MSP_STYLE_PLAIN : MSP_STYLE_RED, "%s", number);
        break;
    case MSP_CELL_BOOL:
        fputs(c.as.b ? "True" : "False", out);
        break;
    default:
        fputc('-', out);
    }
}

void
msp_show_json_cell(msp_jsonout *j, const char *key, msp_cell c)
{
    switch (c.kind) {
    case MSP_CELL_TEXT:
        msp_show_json_text(j, key, (msp_look_text){c.as.text.p, c.as.text.len});
        break;
    case MSP_CELL_INT:
        msp_jsonout_int(j, key, c.as.i);
        break;
    case MSP_CELL_FLOAT:
        msp_jsonout_float(j, key, c.as.f);
        break;
    case MSP_CELL_BOOL:
        msp_jsonout_bool(j, key, c.as.b);
        break;
    default:
        msp_jsonout_text(j, key, NULL);
    }
}

void
msp_show_frame(FILE *out, const char *frame, int indent)
{
    char text[2048];
    const char *code = msp_frame_place(text, sizeof(text), frame, false);

    fprintf(out, "%*s", indent, "");
    put_safe(out, MSP_STYLE_PLAIN, text);
    fputc('\n', out);
    if (code == NULL)
        return;
    fprintf(out, "%*s", indent + 4, "");
    put_safe(out, MSP_STYLE_DIM, code);
    fputc('\n', out);
}

/* ---- tensors ------------------------------------------------------------------------------------------------- */

void
msp_show_index(FILE *out, const msp_tensor *t, int64_t at)
{
    int64_t coords[MSP_MAX_NDIM];

    msp_tensor_unravel(t, at, coords);
    fputc('[', out);
    for (int32_t i = 0; i < t->ndim; i++)
        fprintf(out, "%s%lld", i > 0 ? ", " : "", (long long)coords[i]);
    fputc(']', out);
}

void
msp_show_json_index(msp_jsonout *j, const char *key, const msp_tensor *t, int64_t at)
{
    int64_t coords[MSP_MAX_NDIM];

    msp_tensor_unravel(t, at, coords);
    msp_jsonout_ints(j, key, coords, (size_t)t->ndim);
}

void
msp_show_shape(FILE *out, const msp_tensor *t)
{
    fputc('[', out);
    for (int32_t i = 0; i < t->ndim; i++)
        fprintf(out, "%s%lld", i > 0 ? ", " : "", (long long)t->shape[i]);
    fputc(']', out);
}

void
msp_show_json_shape(msp_jsonout *j, const char *key, const msp_tensor *t)
{
    msp_jsonout_ints(j, key, t->shape, (size_t)t->ndim);
}

const char *
msp_show_element(char buf[80], const msp_tensor *t, int64_t at)
{
    msp_dtype_format(buf, t->dtype, msp_tensor_at(t, at));
    return buf;
}

size_t
msp_show_tensor_named(const msp_tensor_file *f, const char *name)
{
    size_t n = msp_tensor_file_count(f), i;

    for (i = 0; i < n && strcmp(msp_tensor_file_name(f, i), name) != 0;)
        i++;
    return i;
}
