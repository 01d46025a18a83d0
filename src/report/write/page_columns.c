/* page_columns.c - see page_columns.h. */
#include "report/write/page_columns.h"

#include <math.h>
#include <string.h>
#include "core/map.h"

enum { FINGERPRINT_STATS = 4 };

static const struct {
    const char *title;
    msp_page_role role;
} known_titles[] = {{"NPU Name", PAGE_ROLE_NAME},
                    {"Bench Name", PAGE_ROLE_BENCH_NAME},
                    {"NPU Dtype", PAGE_ROLE_DTYPE},
                    {"NPU Tensor Shape", PAGE_ROLE_SHAPE},
                    {"NPU Shape", PAGE_ROLE_SHAPE},
                    {"Cosine", PAGE_ROLE_COSINE},
                    {"EucDist", PAGE_ROLE_EUC},
                    {"MaxAbsErr", PAGE_ROLE_MAX_ABS},
                    {"Max diff", PAGE_ROLE_DIFF},
                    {"Min diff", PAGE_ROLE_DIFF + 1},
                    {"Mean diff", PAGE_ROLE_DIFF + 2},
                    {"L2norm diff", PAGE_ROLE_DIFF + 3},
                    {"MaxRelativeErr", PAGE_ROLE_REL},
                    {"MinRelativeErr", PAGE_ROLE_REL + 1},
                    {"MeanRelativeErr", PAGE_ROLE_REL + 2},
                    {"NormRelativeErr", PAGE_ROLE_REL + 3},
                    {"NPU max", PAGE_ROLE_STAT},
                    {"NPU min", PAGE_ROLE_STAT + 1},
                    {"NPU mean", PAGE_ROLE_STAT + 2},
                    {"NPU l2norm", PAGE_ROLE_STAT + 3},
                    {"Bench max", PAGE_ROLE_BENCH_STAT},
                    {"Bench min", PAGE_ROLE_BENCH_STAT + 1},
                    {"Bench mean", PAGE_ROLE_BENCH_STAT + 2},
                    {"Bench l2norm", PAGE_ROLE_BENCH_STAT + 3},
                    {"NPU MD5", PAGE_ROLE_MD5},
                    {"BENCH MD5", PAGE_ROLE_BENCH_MD5},
                    {"Accuracy Reached or Not", PAGE_ROLE_VERDICT},
                    {"Result", PAGE_ROLE_VERDICT},
                    {"NPU_Stack_Info", PAGE_ROLE_LEFT_OUT},
                    {"Data_Name", PAGE_ROLE_LEFT_OUT},
                    {"Data_name", PAGE_ROLE_LEFT_OUT}};

msp_page_role
msp_page_role_of(const char *title)
{
    for (size_t i = 0; i < sizeof(known_titles) / sizeof(known_titles[0]); i++)
        if (strcmp(title, known_titles[i].title) == 0)
            return known_titles[i].role;
    return PAGE_ROLE_VALUE;
}

const msp_cell *
msp_page_cell(const msp_page_roles *roles, const msp_cell *cells, msp_page_role r)
{
    return roles->column[r] < 0 ? NULL : &cells[roles->column[r]];
}

msp_str
msp_page_cell_text(const msp_cell *c)
{
    return c == NULL || c->kind != MSP_CELL_TEXT ? (msp_str){"", 0} : (msp_str){c->as.text.p, c->as.text.len};
}

/* The cell as a number: infinities, and NaN where it says so. False for every other word. */
static bool
number_of(const msp_cell *c, double *out)
{
    static const struct {
        const char *word;
        double v;
    } words[] = {{"nan", NAN}, {"Nan", NAN}, {"NaN", NAN}, {"inf", INFINITY}, {"-inf", -INFINITY}};
    msp_str s = msp_page_cell_text(c);

    if (c == NULL)
        return false;
    if (c->kind == MSP_CELL_FLOAT)
        *out = c->as.f;
    else if (c->kind == MSP_CELL_INT)
        *out = (double)c->as.i;
    else if (c->kind == MSP_CELL_TEXT) {
        while (s.len > 0 && s.p[s.len - 1] == '\t')
            s.len--;
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
            if (msp_str_eq(s, msp_str_of(words[i].word))) {
                *out = words[i].v;
                return true;
            }
        return false;
    } else
        return false;
    return true;
}

static bool
has_nonfinite(const msp_page_roles *roles, const msp_cell *cells, msp_page_role first)
{
    double v;

    for (int i = 0; i < 2; i++) /* maximum and minimum */
        if (number_of(msp_page_cell(roles, cells, first + (msp_page_role)i), &v) && !isfinite(v))
            return true;
    return false;
}

bool
msp_page_row_nonfinite(const msp_page_roles *roles, const msp_cell *cells)
{
    return has_nonfinite(roles, cells, PAGE_ROLE_STAT) != has_nonfinite(roles, cells, PAGE_ROLE_BENCH_STAT) &&
           !msp_str_eq(msp_page_cell_text(msp_page_cell(roles, cells, PAGE_ROLE_BENCH_NAME)), MSP_STR("N/A"));
}

float
msp_page_row_error(const msp_page_roles *roles, const msp_cell *cells, bool nonfinite)
{
    double euc, norm, scale = 0, worst = -1, v, b;

    if (nonfinite)
        return INFINITY;
    if (number_of(msp_page_cell(roles, cells, PAGE_ROLE_EUC), &euc) && isfinite(euc)) {
        if (number_of(msp_page_cell(roles, cells, PAGE_ROLE_BENCH_STAT + 3), &norm) && isfinite(norm) && norm > 0)
            return (float)(euc / norm);
        return (float)euc;
    }
    if (number_of(msp_page_cell(roles, cells, PAGE_ROLE_MAX_ABS), &euc) && isfinite(euc)) {
        if (number_of(msp_page_cell(roles, cells, PAGE_ROLE_BENCH_STAT), &norm) && isfinite(norm) && norm != 0)
            return (float)(euc / fabs(norm));
        return (float)euc;
    }
    for (int i = 0; i < 4; i++) {
        if (!number_of(msp_page_cell(roles, cells, PAGE_ROLE_DIFF + (msp_page_role)i), &v) ||
            !number_of(msp_page_cell(roles, cells, PAGE_ROLE_BENCH_STAT + (msp_page_role)i), &b))
            continue;
        if (!isfinite(v) || !isfinite(b))
            continue;
        if (i < 3) { /* a mean near 0 is no scale of its own */
            double m;

            scale = 0;
            for (int k = 0; k < 3; k++)
                if (number_of(msp_page_cell(roles, cells, PAGE_ROLE_BENCH_STAT + (msp_page_role)k), &m) &&
                    isfinite(m) && fabs(m) > scale)
                    scale = fabs(m);
        } else {
            scale = fabs(b);
        }
        v = fabs(v);
        v = scale > 0 ? v / scale : v;
        if (v > worst)
            worst = v;
    }
    if (worst < 0 && roles->column[PAGE_ROLE_MD5] >= 0) {
        msp_str a = msp_page_cell_text(msp_page_cell(roles, cells, PAGE_ROLE_MD5)),
                c = msp_page_cell_text(msp_page_cell(roles, cells, PAGE_ROLE_BENCH_MD5));

        return a.len == 0 || c.len == 0 || msp_str_eq(c, MSP_STR("N/A")) ? -1 : msp_str_eq(a, c) ? 0 : 1;
    }
    return (float)worst;
}

msp_page_verdict
msp_page_row_verdict(const msp_page_roles *roles, const msp_cell *cells, bool nonfinite)
{
    msp_str v = msp_page_cell_text(msp_page_cell(roles, cells, PAGE_ROLE_VERDICT)),
            bench = msp_page_cell_text(msp_page_cell(roles, cells, PAGE_ROLE_BENCH_NAME));
    const msp_cell *c = msp_page_cell(roles, cells, PAGE_ROLE_VERDICT);

    if (msp_str_eq(bench, MSP_STR("N/A")))
        return PAGE_UNMATCHED;
    if (nonfinite || msp_str_eq(v, MSP_STR("No")) || msp_str_eq(v, MSP_STR("Warning")) ||
        msp_str_eq(v, MSP_STR("Different")) || msp_str_eq(v, MSP_STR("error")))
        return PAGE_WRONG;
    if (msp_str_eq(v, MSP_STR("Unmatched")))
        return PAGE_UNMATCHED;
    if (c == NULL || msp_str_eq(v, MSP_STR("None")) || msp_str_eq(v, MSP_STR("N/A")))
        return PAGE_NOT_JUDGED;
    return PAGE_FINE;
}

static uint64_t
mix_hash(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

uint64_t
msp_page_row_fingerprint(const msp_page_roles *roles, const msp_cell *cells)
{
    uint64_t h = msp_str_hash(msp_page_cell_text(msp_page_cell(roles, cells, PAGE_ROLE_SHAPE)));
    double v[FINGERPRINT_STATS];
    msp_str md5 = msp_page_cell_text(msp_page_cell(roles, cells, PAGE_ROLE_MD5));

    h = mix_hash(h, msp_str_hash(msp_page_cell_text(msp_page_cell(roles, cells, PAGE_ROLE_DTYPE))));
    if (md5.len > 0)
        return msp_str_eq(md5, MSP_STR("N/A")) ? 0 : mix_hash(h, msp_str_hash(md5)) | 1;
    for (int i = 0; i < FINGERPRINT_STATS; i++) {
        uint64_t bits;

        if (!number_of(msp_page_cell(roles, cells, PAGE_ROLE_STAT + (msp_page_role)i), &v[i]))
            return 0;
        memcpy(&bits, &v[i], sizeof(bits));
        h = mix_hash(h, bits);
    }
    return v[0] == v[1] || v[3] == 0 ? 0 : h | 1;
}
