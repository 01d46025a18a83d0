/* test_legacy.c - dumps of ptdbg_ascend and torch_npu.hooks: lines, groups, partners, verdicts, and hostile files. */
#include "unit.h"
#include <math.h>
#include "compare/legacy/legacy.h"
#include "hostile.h"

#define T(name) "[\"" name "\", 1, [], \"torch.float32\", [2], [2.0, 1.0, 1.5]]\n"
#define S(call) \
    "[\"" call "_stack_info\", [[\"/w/t.py\", \"3\", \"f\", \"y = 1\"], [\"/w/m.py\", \"9\", \"g\", null]]]\n"
#define V(name, list) "[\"" name "\", [" list "], \"torch.float32\", [2]]\n"

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static msp_status
open_text(msp_legacy_file *f, const char *text, msp_error *err)
{
    *f = (msp_legacy_file){0};
    return msp_legacy_open_text(f, text, strlen(text), "d.pkl", err);
}

static msp_legacy_file
opened(const char *text)
{
    msp_legacy_file f;
    msp_error err;

    if (open_text(&f, text, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return f;
}

static void
refused(const char *text, msp_status status, const char *message)
{
    msp_legacy_file f;
    msp_error err;

    assert_int_equal(open_text(&f, text, &err), status);
    if (strstr(err.message, message) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", message, err.message);
    msp_legacy_release(&f);
}

static void
every_kind_of_line_is_told_by_its_elements(void **state)
{
    static const char text[] = T("Torch_a_0_forward_input.0")
        S("Torch_a_0_forward") "\n  \r\n"
                               "[\"Torch_b_0_forward_output\", 101, [], \"torch.float32\", [2, 2]]\n" V(
                                   "Torch_c_forward_output", "1, 2");
    msp_legacy_reader r = {.text = text, .size = sizeof(text) - 1, .path = "d.pkl"};
    msp_legacy_kind kinds[] = {LEGACY_TENSOR, LEGACY_STACK, LEGACY_TENSOR, LEGACY_VALUES};
    size_t numbers[] = {1, 2, 5, 6};
    msp_legacy_line line;
    bool more;

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(msp_legacy_next(&r, &line, &more, NULL), MSP_OK);
        assert_true(more);
        assert_int_equal(line.kind, kinds[i]);
        assert_int_equal(line.number, numbers[i]);
    }
    assert_true(msp_str_eq(line.values, MSP_STR("[1, 2]")));
    assert_true(line.name.p > text && line.name.p < text + sizeof(text)); /* no copy: it lives as long as the file */
    assert_int_equal(msp_legacy_next(&r, &line, &more, NULL), MSP_OK);
    assert_false(more);
    msp_legacy_reader_release(&r);
}

#define E(name, dtype, shape) "[\"" name "\", [1.5], \"torch." dtype "\", [" shape "]]\n"

static void
lines_that_end_alike_have_the_same_type_and_shape(void **state)
{
    static const char text[] = E("a_output", "float32", "2, 3") E("b_output", "float16", "2, 3")
        E("c_output", "float32", "2, 3") E("\\u0064_output", "float32", "2, 3") E("e_output", "float32", "4, 3");
    static const char *const expected[][3] = {{"a_output", "torch.float32", "[2, 3]"},
                                              {"b_output", "torch.float16", "[2, 3]"},
                                              {"c_output", "torch.float32", "[2, 3]"},
                                              {"d_output", "torch.float32", "[2, 3]"},
                                              {"e_output", "torch.float32", "[4, 3]"}};
    msp_legacy_known known[LEGACY_KNOWN] = {{{0}, 0}};
    msp_legacy_reader r = {.text = text, .size = sizeof(text) - 1, .path = "d.pkl", .known = known};
    msp_legacy_file f = opened(text);
    msp_legacy_line line;
    bool more;

    (void)state;
    assert_int_equal(f.rows.count, 5);
    for (size_t i = 0; i < 5; i++) {
        const msp_row *row = &f.rows.rows[i];

        assert_true(msp_str_eq(msp_row_name(row), msp_str_of(expected[i][0])));
        assert_true(msp_str_eq(msp_row_dtype(&f.rows, row), msp_str_of(expected[i][1])));
        assert_true(msp_str_eq(msp_row_shape(&f.rows, row), msp_str_of(expected[i][2])));
        assert_int_equal(msp_legacy_next(&r, &line, &more, NULL), MSP_OK);
        assert_true(i == 2 ? line.like == 0 : line.like == LEGACY_NONE && line.dtype != NULL);
    }
    msp_legacy_reader_release(&r);
    msp_legacy_release(&f);
    /* what is wrong with a name is found whatever the end */
    refused(E("a_output", "float32", "2") E("b\001_output", "float32", "2"), MSP_E_FORMAT, "line 2, column 4");
    refused(E("a_output", "float32", "2") E("b\xff_output", "float32", "2"), MSP_E_FORMAT, "line 2, column 4");
}

#define L(name, rest, numbers) "[\"" name "\", " rest "[" numbers "]]\n"
#define REST                   "1, [], \"torch.float32\", [2], "

static void
lines_that_differ_in_name_and_statistics_are_read_once(void **state)
{
    static const char text[] = L("a_input", REST, "2.5, -1.0, 0.5") L("b_input", REST, "3.5, -2.0, 0.25, 7.0")
        L("c_input", "1, \"0a1b2c3d\", \"torch.float32\", [2], ", "1.0, 2.0, 3.0")
            L("d_input", "1, \"0a1b2c3d\", \"torch.float32\", [2], ", "4.0, 5.0, 6.0")
                L("e_output", REST, "1, 2e-05, NaN");
    static const size_t like[] = {LEGACY_NONE, 0, LEGACY_NONE, 2, LEGACY_NONE};
    msp_legacy_known known[LEGACY_KNOWN] = {{{0}, 0}};
    msp_legacy_reader r = {.text = text, .size = sizeof(text) - 1, .path = "d.pkl", .known = known};
    msp_legacy_file f = opened(text);
    const msp_row *rows = f.rows.rows;
    msp_legacy_line line;
    bool more;

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(msp_legacy_next(&r, &line, &more, NULL), MSP_OK);
        assert_int_equal(line.like, like[i]);
        assert_int_equal(line.kind, LEGACY_TENSOR);
        assert_true(msp_str_eq(msp_row_dtype(&f.rows, &rows[i]), MSP_STR("torch.float32")));
        assert_true(msp_str_eq(msp_row_shape(&f.rows, &rows[i]), MSP_STR("[2]")));
        assert_int_equal(rows[i].md5.kind, i == 2 || i == 3 ? VAL_TEXT : VAL_NONE);
    }
    assert_true(msp_str_eq(msp_row_name(&rows[1]), MSP_STR("b_input")));
    assert_true(rows[1].stats[MSP_STAT_MIN].as.f == -2.0 && rows[1].stats[MSP_STAT_NORM].as.f == 7.0);
    assert_true(rows[3].stats[MSP_STAT_MEAN].as.f == 6.0 && rows[3].stats[MSP_STAT_NORM].kind == VAL_NONE);
    assert_int_equal(rows[4].stats[MSP_STAT_MAX].kind, VAL_INT);
    assert_true(rows[4].stats[MSP_STAT_MIN].as.f == 2e-05 && isnan(rows[4].stats[MSP_STAT_MEAN].as.f));
    msp_legacy_reader_release(&r);
    msp_legacy_release(&f);
}

/* Each behind a line that it would be like, if it were right. */
static void
what_is_wrong_with_a_line_that_looks_like_another_is_found(void **state)
{
    static const char *const numbers[] = {"01.0, 2.0, 3.0",  "1., 2.0, 3.0",    ".5, 2.0, 3.0", "-.5, 2.0, 3.0",
                                          "+1.0, 2.0, 3.0",  "1.0, 2.0, 3.0,",  "1.0 2.0, 3.0", "1.0, , 3.0",
                                          "1.0, 2.0, 3.0, ", "1.0.0, 2.0, 3.0", "1.0, 2.0",     "",
                                          "1.0, 2.0, -",     "--1.0, 2.0, 3.0", "x, 2.0, 3.0"};
    char text[512];
    msp_legacy_file f;

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        snprintf(text, sizeof(text), "%s[\"b_output\", " REST "[%s]]\n", T("a_output"), numbers[i]);
        refused(text, MSP_E_FORMAT, "d.pkl: line 2");
    }
    refused(T("a_output") L("b\001_output", REST, "1.0, 2.0, 3.0"), MSP_E_FORMAT, "line 2, column 4");
    refused(T("a_output") "[\"b_output\", " REST "[1.0, 2.0, 3.0]\n", MSP_E_FORMAT, "line 2");
    refused(T("a_output") "[\"b_output\", " REST "[1.0, 2.0, 3.0]]]\n", MSP_E_FORMAT, "line 2");
    /* without the blank after the name it is a list of values all the same, and no statistics */
    refused("[\"a_output\",[1, [], \"torch.float32\", [2], [1.0, 2.0, 3.0]]\n" T("b_output"), MSP_E_FORMAT,
            "line 2: a line of ptdbg_ascend");
    f = opened("[\"a_output\",[1, [], \"torch.float32\", [2], [1.0, 2.0, 3.0]]\n"
               "[\"b_output\",[1, [], \"torch.float32\", [2], [4.0, 5.0, 6.0]]\n");
    assert_true(f.hooks && f.rows.rows[1].stats[MSP_STAT_MAX].kind == VAL_NONE);
    msp_legacy_release(&f);
    /* a bracket in a text is no list, whatever the next line makes of it */
    refused(L("a_output", REST "[\"x\", \"y\", \"", "1.0, 2.0, 3.0]]\"")
                L("b_output", REST "[\"x\", \"y\", \"", "1.0, 2.0, 3.0"),
            MSP_E_FORMAT, "line 2");
}

static void
wrong_lines_are_named_with_line_and_reason(void **state)
{
    (void)state;
    refused(T("Torch_a_0_forward_output") "{\"a\": 1}\n", MSP_E_FORMAT, "d.pkl: line 2: must be a JSON array");
    refused("[\"a_output\", 1, []]\n", MSP_E_FORMAT, "line 1: must have 2, 4, 5 or 6 elements");
    refused("[\"a_output\", 1.5, [], \"t\", [], [1, 2, 3]]\n", MSP_E_FORMAT,
            "the second element must be a whole number");
    refused("[\"a_output\", 1, [], 7, [], [1, 2, 3]]\n", MSP_E_FORMAT, "the fourth element must be a type");
    refused("[\"a_output\", 1, [], \"t\", [], [1, 2]]\n", MSP_E_FORMAT, "at least three statistics");
    refused("[\"a_output\", [[1]]]\n", MSP_E_FORMAT, "line 1");
    refused("[\"a_output\", [1, 2], 7, []]\n", MSP_E_FORMAT, "type and shape must follow");
    refused("\n[\"a_output\", 1, [], \"t\" [], [1, 2, 3]]\n", MSP_E_FORMAT, "d.pkl: line 2, column 25: ");
    refused(T("a_output") V("a_forward_output", "1"), MSP_E_FORMAT, "line 2: a line of torch_npu.hooks");
    refused("", MSP_E_FORMAT, "empty");
}

static void
a_torn_last_line_is_left_out(void **state)
{
    static const char whole[] = T("Torch_a_0_forward_output") T("Torch_b_0_forward_output");
    size_t first = strlen(T("Torch_a_0_forward_output"));

    (void)state;
    for (size_t n = first + 1; n < sizeof(whole) - 2; n++) {
        msp_legacy_file f = {0};

        assert_int_equal(msp_legacy_open_text(&f, whole, n, "d.pkl", NULL), MSP_OK);
        assert_true(f.cut);
        assert_int_equal(f.rows.count, 1);
        msp_legacy_release(&f);
    }
}

static void
zeros_after_a_crash_are_left_out(void **state)
{
    static const char text[] = T("Torch_a_0_forward_output") "\0\0\0\0";
    msp_legacy_file f = {0};

    (void)state;
    assert_int_equal(msp_legacy_open_text(&f, text, sizeof(text) - 1, "d.pkl", NULL), MSP_OK);
    assert_true(f.cut);
    assert_int_equal(f.rows.count, 1);
    msp_legacy_release(&f);
}

static void
a_real_pickle_is_refused(void **state)
{
    static const char *const begins[] = {"\x80\x02]q", "\x80\x05\x95", "(lp0\n.", "(dp0\n.", "ccopy_reg\n_rec"};

    (void)state;
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
        refused(begins[i], MSP_E_UNSUPPORTED, "never loaded");
}

static void
values_are_numbers_between_commas_and_nothing_else(void **state)
{
    static const char *const wrong[] = {"[,]", "[1,]",      "[,1]",    "[1 2]",  "[1,,2]",
                                        "[x]", "[1, null]", "[1.5.2]", "[\"1\"]"};
    const double want[] = {1, -2.5, 0.1, 1e300, INFINITY, -INFINITY, 1, 0};
    msp_error err;
    double *v;
    size_t n;

    (void)state;
    assert_int_equal(msp_legacy_values(&v, &n, MSP_STR("[ 1,-2.5, 0.1 ,1e300,Infinity, -Infinity, true,false]"), NULL),
                     MSP_OK);
    assert_int_equal(n, 8);
    assert_memory_equal(v, want, sizeof(want));
    msp_free(v);
    assert_int_equal(msp_legacy_values(&v, &n, MSP_STR("[NaN]"), NULL), MSP_OK);
    assert_true(n == 1 && isnan(v[0]));
    msp_free(v);
    assert_int_equal(msp_legacy_values(&v, &n, MSP_STR("[ ]"), NULL), MSP_OK);
    assert_int_equal(n, 0);
    msp_free(v);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(msp_legacy_values(&v, &n, msp_str_of(wrong[i]), &err), MSP_E_FORMAT);
        assert_non_null(strstr(err.message, "is no number"));
        assert_null(v);
    }
}

static void
the_call_is_the_name_without_what_it_took_or_gave(void **state)
{
    static const char *const pairs[][2] = {{"Torch_relu_0_forward_input.0", "Torch_relu_0_forward"},
                                           {"Torch_relu_0_forward_output", "Torch_relu_0_forward"},
                                           {"Torch_cat_0_forward_input.0.1", "Torch_cat_0_forward"},
                                           {"Functional.conv2d.1.forward.input.0", "Functional.conv2d.1.forward"},
                                           {"Torch_a_0_backward_stack_info", "Torch_a_0_backward"},
                                           {"Torch_output_0_forward_input.0", "Torch_output_0_forward"},
                                           {"input", "input"},
                                           {"", ""}};

    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        assert_true(msp_str_eq(msp_legacy_call(msp_str_of(pairs[i][0])), msp_str_of(pairs[i][1])));
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* The rows of every group: "2 1" for two groups of two rows and one. */
static const char *
groups_of(const msp_legacy_file *f)
{
    static char text[256];
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < f->rows.napis; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%zu", i > 0 ? " " : "", f->rows.apis[i].count);
    return text;
}

static void
has_groups(const char *text, const char *groups, size_t left_out)
{
    msp_legacy_file f = opened(text);

    assert_string_equal(groups_of(&f), groups);
    assert_int_equal(f.left_out, left_out);
    msp_legacy_release(&f);
}

static void
a_group_ends_where_outputs_end(void **state)
{
    (void)state;
    has_groups(T("a_input.0") T("a_input.1") T("a_output.0") T("a_output.1") T("b_input.0") T("b_output"), "4 2", 0);
    /* outputs alone belong to the call before */
    has_groups(T("a_input.0") T("a_output") T("b_output") T("c_input.0") T("c_output"), "3 2", 0);
    /* inputs alone to the call after */
    has_groups(T("a_input.0") T("b_input.0") T("b_output"), "3", 0);
    has_groups(T("a_input.0") T("a_output") T("b_input.0") T("b_input.1"), "2", 2);
}

static void
stacks_stand_behind_their_call_or_before_it(void **state)
{
    msp_legacy_file f;

    (void)state;
    has_groups(T("a_input.0") T("a_output") S("a") S("e") T("b_output") S("b"), "2 1", 0);
    has_groups(S("a") T("a_input.0") T("a_output") S("b") T("b_input.0") T("b_output"), "2 2", 0);
    has_groups(S("e") T("a_input.0") S("a") T("b_output") S("b"), "1 1", 0);
    /* a name that ends like a stack's is none */
    has_groups(T("a_input.0") T("a_output") T("b_stack_info") T("b_output"), "2 2", 0);
    f = opened(T("a_input.0") T("a_output") S("a") T("b_output") S("b"));
    assert_int_equal(msp_json_count(msp_stack_frames(f.stack, MSP_STR("a"))), 2);
    assert_null(msp_stack_frames(f.stack, MSP_STR("c")));
    msp_legacy_release(&f);
}

static void
torch_npu_hooks_ends_a_group_after_every_output(void **state)
{
    (void)state;
    has_groups(V("a_forward_input.0", "1") V("a_forward_output.0", "1") V("a_forward_output.1", "2"), "2 1", 0);
    has_groups(V("a_forward_output", "1") V("b_forward_input.0", "1"), "1", 1);
}

/* ---- partners ---------------------------------------------------------------------------------------------------- */

/* For every NPU group its partner's number, "-" for none: one letter is one operator. */
static const char *
walk(const char *npu, const char *bench)
{
    static char text[256];
    uint32_t n[64], b[64], partner[64];
    msp_match_sequence ns = {n, strlen(npu)}, bs = {b, strlen(bench)};
    size_t at = 0;

    for (size_t i = 0; i < ns.count; i++)
        n[i] = (uint32_t)(npu[i] - 'a');
    for (size_t i = 0; i < bs.count; i++)
        b[i] = (uint32_t)(bench[i] - 'a');
    assert_int_equal(msp_match_walk(partner, &ns, &bs, 26, NULL), MSP_OK);
    text[0] = '\0';
    for (size_t i = 0; i < ns.count; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, partner[i] == MATCH_NONE ? "-" : "%u", partner[i]);
    return text;
}

static void
operators_are_skipped_until_both_sides_agree_again(void **state)
{
    (void)state;
    assert_string_equal(walk("abc", "abc"), "012");
    assert_string_equal(walk("abcd", "akcd"), "0-23");   /* the manual's figure, */
    assert_string_equal(walk("abcde", "akde"), "0--23"); /* and with two against one */
    assert_string_equal(walk("ade", "abcde"), "034");
    assert_string_equal(walk("ab", "ba"), "-0"); /* swapped: the first is given up */
    assert_string_equal(walk("abcdef", "a"), "0-----");
    assert_string_equal(walk("f", "abcdef"), "5");
    assert_string_equal(walk("abc", ""), "---");
    assert_string_equal(walk("", "abc"), "");
}

static void
of_repeated_operators_the_oldest_meet(void **state)
{
    (void)state;
    assert_string_equal(walk("aaa", "aqaa"), "023");
    assert_string_equal(walk("aqaa", "aaa"), "0-12");
    assert_string_equal(walk("abab", "abab"), "0123");
    assert_string_equal(walk("abab", "ab"), "01--");
}

static const char *
partners(const char *npu, const char *bench, msp_legacy_match_rule rule)
{
    static char text[256];
    msp_legacy_file n = opened(npu), b = opened(bench);
    msp_match m;
    size_t at = 0;

    rule.numbered[0] = n.numbered;
    rule.numbered[1] = b.numbered;
    assert_int_equal(msp_legacy_match(&m, &n.rows, &b.rows, &rule, NULL), MSP_OK);
    for (size_t i = 0; i < m.count; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, m.bench[i] == MATCH_NONE ? "-" : "%u", m.bench[i]);
    msp_match_release(&m);
    msp_legacy_release(&n);
    msp_legacy_release(&b);
    return text;
}

static void
groups_match_by_all_their_names(void **state)
{
    msp_legacy_match_rule exact = {0}, fuzzy = {.fuzzy = true}, shapes = {.shapes = true};
    const char *one = "[\"Torch_a_1_forward_output\", 1, [], \"torch.float16\", [2], [2, 1, 1]]\n";
    const char *two = "[\"Torch_a_1_forward_output\", 1, [], \"torch.float32\", [1], [2, 1, 1]]\n";

    (void)state;
    assert_string_equal(partners(T("a_input.0") T("a_output"), T("a_output"), exact), "--");
    assert_string_equal(partners(T("Torch_a_1_forward_output"), T("Torch_a_2_forward_output"), exact), "-");
    assert_string_equal(partners(T("Torch_a_1_forward_output"), T("Torch_a_12_forward_output"), fuzzy), "0");
    assert_string_equal(partners(T("Torch.a.1.forward.output"), T("Torch.a.12.forward.output"), fuzzy), "0");
    assert_string_equal(partners(T("Torch_a_1_forward_output"), one, shapes), "0");
    assert_string_equal(partners(T("Torch_a_1_forward_output"), two, shapes), "-");
    assert_string_equal(partners(T("Torch_a_1_forward_output"), two, exact), "0");
    assert_string_equal(partners(V("7_Torch_a_forward_output", "1"), V("12_Torch_a_forward_output", "1"), exact), "0");
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

/* "Cosine|RMSE|MAPE" of two lists. */
static const char *
judge_lists(const char *npu, const char *bench)
{
    static char text[512];
    char lines[2][256];
    msp_legacy_file f[2];
    msp_legacy_look look = {.form = MSP_LEGACY_HOOKS, .npu = &f[0].rows, .bench = &f[1].rows};
    msp_measurer m = {.fds = {-1, -1}, .values = true, .threads = 1};
    msp_shown shown = {0};
    msp_judged j = {0};
    size_t at = 0;

    for (int i = 0; i < 2; i++) {
        snprintf(lines[i], sizeof(lines[i]), "[\"a_forward_output\", [%s], \"torch.float32\", [2]]\n",
                 i == 0 ? npu : bench);
        f[i] = opened(lines[i]);
    }
    msp_show_rule rule = {MSP_MODE_REAL, &f[0].rows, &f[1].rows, false, &look};
    j.n = &f[0].rows.rows[0];
    j.b = &f[1].rows.rows[0];
    msp_legacy_judge(&j, MSP_MODE_REAL, &look, &m, false);
    msp_legacy_show(&shown, &rule, &j, NULL);
    for (int i = 5; i < 8; i++) {
        msp_cell c = shown.cells[i];
        char number[32] = "";

        if (c.kind == MSP_CELL_FLOAT)
            msp_f64_repr(number, c.as.f);
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%.*s%s", i > 5 ? "|" : "",
                               c.kind == MSP_CELL_TEXT ? (int)c.as.text.len : 0,
                               c.kind == MSP_CELL_TEXT ? c.as.text.p : "", number);
    }
    msp_buf_release(&j.message);
    msp_shown_release(&shown);
    msp_legacy_release(&f[0]);
    msp_legacy_release(&f[1]);
    return text;
}

static void
cosine_rmse_and_mape_are_defined_for_every_list(void **state)
{
    (void)state;
    assert_string_equal(judge_lists("3, 4", "3, 4"), "1.0|0.0|0.0%");
    assert_string_equal(judge_lists("1, 0", "-1, 0"), "-1.0|1.414213562373095|nan%");
    assert_string_equal(judge_lists("1, 0", "0, 1"), "0.0|1.0|inf%");
    assert_string_equal(judge_lists("0, 0", "0, 0"), "nan|0.0|nan%");
    assert_string_equal(judge_lists("0, 0", "3, 4"), "nan|3.5355339059327373|100.0%");
    assert_string_equal(judge_lists("3, 4", "0, 0"), "nan|3.5355339059327373|inf%");
    assert_string_equal(judge_lists("NaN, 1", "1, 1"), "nan||nan%");
    assert_string_equal(judge_lists("NaN, 1", "NaN, 1"), "nan||nan%");
    assert_string_equal(judge_lists("Infinity, 1", "1, 1"), "nan|inf|inf%");
    assert_string_equal(judge_lists("", ""), "empty|empty|empty");
    assert_string_equal(judge_lists("1, 2", "1, 2, 3"),
                        "cannot be calculated |cannot be calculated|cannot be calculated");
    assert_string_equal(judge_lists("1, x", "1, 2"), "cannot be calculated |cannot be calculated|cannot be calculated");
}

static void
six_decimals_are_those_of_printf(void **state)
{
    static const double some[] = {0,         -0.0,  0.5e-6,         1.5e-6, 2.5e-6,           0.9999995, 0.99999949999,
                                  1e300,     -1e-9, 123456.7890125, 1e15,   4503599627370496, INFINITY,  -INFINITY,
                                  0.1234565, 1e11,  999999.9999995};
    char text[MSP_FIXED_MAX], want[MSP_FIXED_MAX];
    uint64_t x = 88172645463325252u;

    (void)state;
    for (size_t i = 0; i < 200000 + sizeof(some) / sizeof(some[0]); i++) {
        double v;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        v = i < sizeof(some) / sizeof(some[0]) ? some[i] : ((double)(int64_t)x * 0x1p-63) * pow(10, (double)(i % 14));
        if (i % 3 == 0 && i > 100) /* on and beside ties */
            v = (rint(v * 1e6) + 0.5) / 1e6;
        snprintf(want, sizeof(want), "%.6f", v);
        assert_int_equal(msp_legacy_fixed(text, v), strlen(want));
        assert_string_equal(text, want);
    }
    msp_legacy_fixed(text, -NAN);
    assert_string_equal(text, "nan");
}

/* ---- hostile files ----------------------------------------------------------------------------------------------- */

static bool
swallow(const char *text, size_t len, void *payload)
{
    *(size_t *)payload += len + (unsigned char)text[0];
    return true;
}

/* Read, matched with itself, parsed; the torn-line rule makes cuts succeed. */
static msp_status
use_file(const void *p, size_t size)
{
    msp_legacy_file f = {0};
    msp_legacy_match_rule rule = {.fuzzy = true, .shapes = true};
    size_t total = 0;
    msp_match m = {0};
    msp_status st = msp_legacy_open_text(&f, p, size, "d.pkl", NULL);

    if (st == MSP_OK)
        st = msp_legacy_match(&m, &f.rows, &f.rows, &rule, NULL);
    if (st == MSP_OK)
        st = msp_legacy_parse_text(p, size, "d.pkl", MSP_STR("T"), swallow, &total, NULL);
    msp_match_release(&m);
    msp_legacy_release(&f);
    return st;
}

static const char sample[] = S("Torch_a_0_forward") T("Torch_a_0_forward_input.0") T("Torch_a_0_forward_output")
    S("Torch_b_0_forward") "[\"Torch_b_0_forward_\\u00e4\\\"output\", 0, \"0badf00d\", \"t\", \"[]\", [NaN, [], {}, "
                           "null]]\n" T("Torch_b_0_forward_output");
static const char hooks_sample[] = V("Torch_a_forward_input.0", "1.5, -2e300, NaN") V("Torch_\\ta_forward_output", "");

static void
no_cut_and_no_flipped_bit_breaks_the_reader(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof(sample) - 1; n++)
        (void)parse_copy(use_file, sample, n);
    for (size_t n = 0; n < sizeof(hooks_sample) - 1; n++)
        (void)parse_copy(use_file, hooks_sample, n);
    assert_true(flip_every_bit(use_file, sample, sizeof(sample) - 1) > 100);
    assert_true(flip_every_bit(use_file, hooks_sample, sizeof(hooks_sample) - 1) > 50);
}

static void
every_failing_allocation_is_said_and_nothing_leaks(void **state)
{
    (void)state;
    fail_every_allocation(use_file, sample, sizeof(sample) - 1);
    fail_every_allocation(use_file, hooks_sample, sizeof(hooks_sample) - 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_kind_of_line_is_told_by_its_elements),
        TEST(lines_that_end_alike_have_the_same_type_and_shape),
        TEST(lines_that_differ_in_name_and_statistics_are_read_once),
        TEST(what_is_wrong_with_a_line_that_looks_like_another_is_found),
        TEST(wrong_lines_are_named_with_line_and_reason),
        TEST(a_torn_last_line_is_left_out),
        TEST(zeros_after_a_crash_are_left_out),
        TEST(a_real_pickle_is_refused),
        TEST(values_are_numbers_between_commas_and_nothing_else),
        TEST(the_call_is_the_name_without_what_it_took_or_gave),
        TEST(a_group_ends_where_outputs_end),
        TEST(stacks_stand_behind_their_call_or_before_it),
        TEST(torch_npu_hooks_ends_a_group_after_every_output),
        TEST(operators_are_skipped_until_both_sides_agree_again),
        TEST(of_repeated_operators_the_oldest_meet),
        TEST(groups_match_by_all_their_names),
        TEST(cosine_rmse_and_mape_are_defined_for_every_list),
        TEST(six_decimals_are_those_of_printf),
        TEST(no_cut_and_no_flipped_bit_breaks_the_reader),
        TEST(every_failing_allocation_is_said_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
