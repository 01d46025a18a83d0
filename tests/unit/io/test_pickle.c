/* test_pickle.c - promises of io/pickle.h, on pickles written by hand. */
#include "hostile.h"
#include "io/pickle.h"

/* A literal as pickle bytes, zeros included. */
#define BYTES(literal) literal, sizeof(literal) - 1

static msp_budget budget;

static int
open_budget(void **state)
{
    (void)state;
    msp_budget_init(&budget, 0);
    return 0;
}

static int
close_budget(void **state)
{
    (void)state;
    msp_budget_release(&budget);
    return 0;
}

static msp_pickle_value
load(const char *p, size_t n)
{
    msp_pickle_value v;
    msp_error err;
    size_t used;

    if (msp_pickle_read(&v, &used, p, n, &budget, NULL, &err) != MSP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(used, n);
    return v;
}

static void
assert_refused(const char *p, size_t n, msp_status status, const char *message)
{
    msp_pickle_value v;
    msp_error err;

    assert_int_equal(msp_pickle_read(&v, NULL, p, n, &budget, NULL, &err), status);
    assert_string_equal(err.message, message);
    assert_int_equal(v.kind, MSP_PICKLE_EMPTY);
}

static void
integers_of_every_form_are_read(void **state)
{
    const struct {
        const char *p;
        size_t n;
        int64_t value;
    } cases[] = {
        {BYTES("K\xff."), 255},
        {BYTES("M\xff\xff."), 65535},
        {BYTES("J\xff\xff\xff\xff."), -1},
        {BYTES("J\0\0\0\x80."), INT32_MIN},
        {BYTES("I42\n."), 42},
        {BYTES("I-9223372036854775808\n."), INT64_MIN},
        {BYTES("L42L\n."), 42},
        {BYTES("L-1\n."), -1},
        {BYTES("\x8a\0."), 0},
        {BYTES("\x8a\1\x80."), -128},
        {BYTES("\x8a\2\xff\0."), 255},
        {BYTES("\x8a\x8\0\0\0\0\0\0\0\x80."), INT64_MIN},
        {BYTES("\x8b\1\0\0\0\x7f."), 127},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        msp_pickle_value v = load(cases[i].p, cases[i].n);

        assert_int_equal(v.kind, MSP_PICKLE_INT);
        assert_true(v.as.integer == cases[i].value);
    }
}

static void
integers_beyond_64_bits_keep_their_bytes(void **state)
{
    msp_pickle_value v = load(BYTES("\x8a\x9\1\2\3\4\5\6\7\x8\x9."));

    (void)state;
    assert_int_equal(v.kind, MSP_PICKLE_BIGINT);
    assert_int_equal(v.len, 9);
    assert_memory_equal(v.as.text, "\1\2\3\4\5\6\7\x8\x9", 9);
    v = load(BYTES("L9223372036854775808L\n."));
    assert_int_equal(v.kind, MSP_PICKLE_BIGINT);
    assert_memory_equal(v.as.text, "9223372036854775808", v.len);
}

static void
booleans_none_and_floats_are_read(void **state)
{
    (void)state;
    assert_int_equal(load(BYTES("N.")).kind, MSP_PICKLE_NONE);
    assert_true(load(BYTES("\x88.")).as.boolean);
    assert_false(load(BYTES("\x89.")).as.boolean);
    assert_true(load(BYTES("I01\n.")).as.boolean);
    assert_int_equal(load(BYTES("I00\n.")).kind, MSP_PICKLE_BOOL);
    assert_true(load(BYTES("G\xc0\x04\0\0\0\0\0\0.")).as.real == -2.5);
    assert_true(load(BYTES("F-2.5\n.")).as.real == -2.5);
}

static void
assert_text(msp_pickle_value v, msp_pickle_kind kind, const char *text)
{
    assert_int_equal(v.kind, kind);
    assert_int_equal(v.len, strlen(text));
    assert_memory_equal(v.as.text, text, v.len);
}

static void
texts_of_every_form_are_read(void **state)
{
    (void)state;
    assert_text(load(BYTES("X\3\0\0\0abc.")), MSP_PICKLE_TEXT, "abc");
    assert_text(load(BYTES("\x8c\3abc.")), MSP_PICKLE_TEXT, "abc");
    assert_text(load(BYTES("\x8d\3\0\0\0\0\0\0\0abc.")), MSP_PICKLE_TEXT, "abc");
    assert_text(load(BYTES("U\3abc.")), MSP_PICKLE_TEXT, "abc");
    assert_text(load(BYTES("T\3\0\0\0abc.")), MSP_PICKLE_TEXT, "abc");
    assert_text(load(BYTES("Vabc\n.")), MSP_PICKLE_TEXT, "abc");
    assert_text(load(BYTES("S'abc'\n.")), MSP_PICKLE_TEXT, "abc");
    assert_text(load(BYTES("C\3abc.")), MSP_PICKLE_BYTES, "abc");
    assert_text(load(BYTES("B\3\0\0\0abc.")), MSP_PICKLE_BYTES, "abc");
    assert_text(load(BYTES("\x8e\3\0\0\0\0\0\0\0abc.")), MSP_PICKLE_BYTES, "abc");
    assert_text(load(BYTES("\x96\3\0\0\0\0\0\0\0abc.")), MSP_PICKLE_BYTES, "abc");
}

static void
assert_ints(msp_pickle_value v, msp_pickle_kind kind, size_t n)
{
    size_t count = kind == MSP_PICKLE_TUPLE ? v.len : v.as.sequence->count;
    const msp_pickle_value *items = kind == MSP_PICKLE_TUPLE ? v.as.items : v.as.sequence->items;

    assert_int_equal(v.kind, kind);
    assert_int_equal(count, n);
    for (size_t i = 0; i < n; i++)
        assert_true(items[i].as.integer == (int64_t)i + 1);
}

static void
containers_of_every_form_are_read(void **state)
{
    (void)state;
    assert_ints(load(BYTES(").")), MSP_PICKLE_TUPLE, 0);
    assert_ints(load(BYTES("K\1\x85.")), MSP_PICKLE_TUPLE, 1);
    assert_ints(load(BYTES("K\1K\2\x86.")), MSP_PICKLE_TUPLE, 2);
    assert_ints(load(BYTES("K\1K\2K\3\x87.")), MSP_PICKLE_TUPLE, 3);
    assert_ints(load(BYTES("(K\1K\2K\3K\4t.")), MSP_PICKLE_TUPLE, 4);
    assert_ints(load(BYTES("].")), MSP_PICKLE_LIST, 0);
    assert_ints(load(BYTES("]K\1aK\2a.")), MSP_PICKLE_LIST, 2);
    assert_ints(load(BYTES("](K\1K\2K\3e.")), MSP_PICKLE_LIST, 3);
    assert_ints(load(BYTES("(K\1K\2l.")), MSP_PICKLE_LIST, 2);
    assert_ints(load(BYTES("}.")), MSP_PICKLE_DICT, 0);
    assert_ints(load(BYTES("}K\1K\2s.")), MSP_PICKLE_DICT, 2);
    assert_ints(load(BYTES("}(K\1K\2K\3K\4u.")), MSP_PICKLE_DICT, 4);
    assert_ints(load(BYTES("(K\1K\2d.")), MSP_PICKLE_DICT, 2);
    assert_int_equal(load(BYTES("\x8f(K\1\x90.")).kind, MSP_PICKLE_OPAQUE);
    assert_int_equal(load(BYTES("(K\1\x91.")).kind, MSP_PICKLE_OPAQUE);
}

static void
the_memo_gives_back_the_same_container(void **state)
{
    msp_pickle_value v = load(BYTES("(]q\0h\0K\1at.")); /* what is appended to one is in the other */

    (void)state;
    assert_int_equal(v.len, 2);
    assert_ptr_equal(v.as.items[0].as.sequence, v.as.items[1].as.sequence);
    assert_ints(v.as.items[0], MSP_PICKLE_LIST, 1);
    assert_ints(load(BYTES("K\1p7\n0(g7\nt.")), MSP_PICKLE_TUPLE, 1);
    assert_ints(load(BYTES("K\1r\3\0\0\x00"
                           "0(j\3\0\0\0t.")),
                MSP_PICKLE_TUPLE, 1);
    assert_ints(load(BYTES("\x80\4\x95\6\0\0\0\0\0\0\0K\1\x94"
                           "0(h\0t.")),
                MSP_PICKLE_TUPLE, 1);
}

static void
pop_dup_and_marks_work_as_in_python(void **state)
{
    (void)state;
    assert_ints(load(BYTES("(K\1K\x9"
                           "0t.")),
                MSP_PICKLE_TUPLE, 1);
    assert_ints(load(BYTES("K\1(K\x9K\x9"
                           "1\x85.")),
                MSP_PICKLE_TUPLE, 1);
    assert_ints(load(BYTES("K\1(0\x85.")), MSP_PICKLE_TUPLE, 1);
    assert_true(load(BYTES("K\1"
                           "2\x86."))
                    .as.items[1]
                    .as.integer == 1);
}

static void
globals_calls_and_ids_are_refused_without_rules(void **state)
{
    (void)state;
    assert_refused(BYTES("\x80\2cos\nsystem\n."), MSP_E_UNSUPPORTED,
                   "pickle byte 2: os.system is refused: only plain data is read here");
    assert_refused(BYTES("\x8c\2os\x8c\6system\x93."), MSP_E_UNSUPPORTED,
                   "pickle byte 12: os.system is refused: only plain data is read here");
    assert_refused(BYTES("(ios\nsystem\n."), MSP_E_UNSUPPORTED,
                   "pickle byte 1: os.system is refused: only plain data is read here");
    assert_refused(BYTES("N)R."), MSP_E_UNSUPPORTED, "pickle byte 2: a call is refused: only plain data is read here");
    assert_refused(BYTES("N)\x81."), MSP_E_UNSUPPORTED,
                   "pickle byte 2: a call is refused: only plain data is read here");
    assert_refused(BYTES("(No."), MSP_E_UNSUPPORTED, "pickle byte 2: a call is refused: only plain data is read here");
    assert_refused(BYTES("NQ."), MSP_E_UNSUPPORTED,
                   "pickle byte 1: a persistent id is refused: only plain data is read here");
    assert_refused(BYTES("Pabc\n."), MSP_E_UNSUPPORTED, "pickle byte 0: a text persistent id is not read here");
    assert_refused(BYTES("\x82\1."), MSP_E_UNSUPPORTED, "pickle byte 0: the extension registry is not read here");
    assert_refused(BYTES("\x97."), MSP_E_UNSUPPORTED, "pickle byte 0: an out-of-band buffer is not read here");
    assert_refused(BYTES("\x80\6N."), MSP_E_UNSUPPORTED, "pickle byte 0: protocol 6 is newer than 5, the newest known");
}

static void
nonsense_is_a_format_error(void **state)
{
    (void)state;
    assert_refused(NULL, 0, MSP_E_FORMAT, "pickle byte 0: cut short: no STOP");
    assert_refused(BYTES("."), MSP_E_FORMAT, "pickle byte 0: the opcode needs 1 values and the stack has 0");
    assert_refused(BYTES("\xff."), MSP_E_FORMAT, "pickle byte 0: 0xff is no opcode");
    assert_refused(BYTES("K\1K\2"), MSP_E_FORMAT, "pickle byte 4: cut short: no STOP");
    assert_refused(BYTES("K"), MSP_E_FORMAT, "pickle byte 0: cut short: 1 more bytes are announced, 0 are there");
    assert_refused(BYTES("X\377\0\0\0a."), MSP_E_FORMAT,
                   "pickle byte 0: cut short: 255 more bytes are announced, 2 are there");
    assert_refused(BYTES("0."), MSP_E_FORMAT, "pickle byte 0: nothing to pop");
    assert_refused(BYTES("t."), MSP_E_FORMAT, "pickle byte 0: the opcode needs a mark and there is none");
    assert_refused(BYTES("K\1(\x85."), MSP_E_FORMAT, "pickle byte 3: the opcode needs 1 values and the stack has 0");
    assert_refused(BYTES("(K\1d."), MSP_E_FORMAT, "pickle byte 3: a dict with a key and no value");
    assert_refused(BYTES("}(K\1u."), MSP_E_FORMAT, "pickle byte 4: a dict with a key and no value");
    assert_refused(BYTES("NK\1a."), MSP_E_FORMAT, "pickle byte 3: values are added to something that is no list");
    assert_refused(BYTES("]K\1K\1s."), MSP_E_FORMAT, "pickle byte 5: values are added to something that is no dict");
    assert_refused(BYTES("h\0."), MSP_E_FORMAT, "pickle byte 0: nothing was remembered under number 0");
    assert_refused(BYTES("Nr\xff\xff\xff\xff."), MSP_E_FORMAT,
                   "pickle byte 1: memo number 4294967295 is larger than the pickle");
    assert_refused(BYTES("I12x\n."), MSP_E_FORMAT, "pickle byte 0: not a number");
    assert_refused(BYTES("I-\n."), MSP_E_FORMAT, "pickle byte 0: not a number");
    assert_refused(BYTES("Sabc\n."), MSP_E_FORMAT, "pickle byte 0: a string without quotes");
    assert_refused(BYTES("V."), MSP_E_FORMAT, "pickle byte 0: cut short: a line without an end");
    assert_refused(BYTES("NN\x93."), MSP_E_FORMAT, "pickle byte 2: the name of a global is no text");
    assert_refused(BYTES("NNR."), MSP_E_FORMAT, "pickle byte 2: the arguments of a call are no tuple");
    assert_refused(BYTES("\x95\377\0\0\0\0\0\0\0."), MSP_E_FORMAT,
                   "pickle byte 0: cut short: a frame of 255 bytes, 1 are there");
    assert_refused(BYTES("\x8d\0\0\0\0\0\0\0\x80."), MSP_E_LIMIT, "pickle byte 0: a text of 9223372036854775808 bytes");
}

static void
two_pickles_in_a_row_are_read_one_by_one(void **state)
{
    msp_pickle_value v;
    size_t used;

    (void)state;
    assert_int_equal(msp_pickle_read(&v, &used, BYTES("K\1.K\2."), &budget, NULL, NULL), MSP_OK);
    assert_int_equal(used, 3);
}

/* Each byte asks for many of ours: the budget must end it long before memory does. */
static void
a_flood_of_values_ends_at_the_limit(void **state)
{
    const char floods[] = {'(', ']', '}', 'N', ')'};
    size_t n = 2 << 20;
    char *p = malloc(n);

    (void)state;
    for (size_t i = 0; i < sizeof(floods); i++) {
        msp_budget small = {.left = &small.own, .own = n};
        msp_pickle_value v;
        msp_error err;

        memset(p, floods[i], n);
        assert_int_equal(msp_pickle_read(&v, NULL, p, n, &small, NULL, &err), MSP_E_LIMIT);
        assert_non_null(strstr(err.message, "describing its content takes more memory than a file of this size may"));
        assert_true(small.arena.reserved <= 2 * n);
        msp_budget_release(&small);
    }
    free(p);
}

static msp_status
load_once(const void *p, size_t n)
{
    msp_pickle_value v;
    msp_budget b;
    msp_status st;

    msp_budget_init(&b, n);
    st = msp_pickle_read(&v, NULL, p, n, &b, NULL, NULL);
    msp_budget_release(&b);
    return st;
}

static void
cut_flipped_and_starved_pickles_are_errors(void **state)
{
    static const char sample[] =
        "\x80\4\x95\x20\0\0\0\0\0\0\0}\x94(\x8c\1a]\x94(K\1M\2\2J\3\3\3\3G@\0\0\0\0\0\0\0\x88Ne"
        "X\1\0\0\0b(K\1K\2K\3K\4tI12\nh\0\x8a\2\xff\xffNu.";
    static const char many[] = "(K\1q\1K\1q\2K\1q\3K\1q\4K\1q\5K\1q\6K\1q\7K\1q\x28(((((((((((((((((((((((((((((((((("
                               "(((((((((((((NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNt.";

    (void)state;
    assert_every_cut_fails(load_once, sample, sizeof(sample) - 1, sizeof(sample) - 1);
    assert_true(flip_every_bit(load_once, sample, sizeof(sample) - 1) > 100);
    fail_every_allocation(load_once, sample, sizeof(sample) - 1);
    fail_every_allocation(load_once, many, sizeof(many) - 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(integers_of_every_form_are_read),     TEST(integers_beyond_64_bits_keep_their_bytes),
        TEST(booleans_none_and_floats_are_read),   TEST(texts_of_every_form_are_read),
        TEST(containers_of_every_form_are_read),   TEST(the_memo_gives_back_the_same_container),
        TEST(pop_dup_and_marks_work_as_in_python), TEST(globals_calls_and_ids_are_refused_without_rules),
        TEST(nonsense_is_a_format_error),          TEST(two_pickles_in_a_row_are_read_one_by_one),
        TEST(a_flood_of_values_ends_at_the_limit), TEST(cut_flipped_and_starved_pickles_are_errors),
    };

    return cmocka_run_group_tests(tests, open_budget, close_budget);
}
