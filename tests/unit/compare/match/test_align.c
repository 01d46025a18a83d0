/* test_align.c - which call stands for which, where one run makes calls that the other does not. */
#include "rows_of.h"
#include "compare/match/align.h"
#include "compare/match/sequence.h"
#include "compare/verdict/alignment.h"
#include "core/alloc.h"

/* ---- sequences --------------------------------------------------------------------------------------------------- */

enum { MOST = 40 };

/* The length of the longest common subsequence, by the table that everybody knows. */
static size_t
longest_common(const uint32_t *a, size_t n, const uint32_t *b, size_t m)
{
    size_t t[MOST + 1][MOST + 1] = {{0}};

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++)
            t[i + 1][k + 1] = a[i] == b[k] ? t[i][k] + 1 : t[i][k + 1] > t[i + 1][k] ? t[i][k + 1] : t[i + 1][k];
    return t[n][m];
}

/* Partners have equal keys and keep the order; returns how many there are. */
static size_t
check_partners(const uint32_t *partner, const uint32_t *a, size_t n, const uint32_t *b)
{
    size_t met = 0;
    int64_t last = -1;

    for (size_t i = 0; i < n; i++) {
        if (partner[i] == MATCH_NONE)
            continue;
        assert_int_equal(a[i], b[partner[i]]);
        assert_true((int64_t)partner[i] > last);
        last = partner[i];
        met++;
    }
    return met;
}

static void
as_many_items_meet_as_can_in_order(void **state)
{
    uint32_t seed = 1, a[MOST], b[MOST], partner[MOST];
    msp_sequence_room room;

    (void)state;
    assert_true(msp_sequence_room_init(&room, MOST, 8));
    for (int round = 0; round < 3000; round++) {
        size_t n = (seed >> 8) % (MOST + 1), m = (seed >> 16) % (MOST + 1);
        uint32_t kinds = 1 + (uint32_t)round % 7;
        msp_sequence x = {a, n}, y = {b, m};

        for (size_t i = 0; i < MOST; i++) {
            a[i] = ((seed = seed * 1664525 + 1013904223) >> 9) % kinds;
            b[i] = ((seed = seed * 1664525 + 1013904223) >> 9) % (kinds + 1);
        }
        assert_true(msp_sequence_align(partner, &x, &y, &room));
        assert_int_equal(check_partners(partner, a, n, b), longest_common(a, n, b, m));
    }
    msp_sequence_room_release(&room);
}

/* Sequences of a hundred thousand items with nothing in common, and with everything in another order. */
static void
what_cannot_be_aligned_is_given_up_and_takes_no_square_of_time(void **state)
{
    enum { N = 100000 };
    uint32_t *a = malloc(N * sizeof(*a)), *b = malloc(N * sizeof(*b)), *partner = malloc(N * sizeof(*partner)),
             seed = 7;
    msp_sequence x = {a, N}, y = {b, N};
    msp_sequence_room room;

    (void)state;
    assert_true(msp_sequence_room_init(&room, N, 2 * N));
    for (uint32_t i = 0; i < N; i++) {
        a[i] = i;
        b[i] = N + i;
    }
    assert_true(msp_sequence_align(partner, &x, &y, &room));
    assert_int_equal(check_partners(partner, a, N, b), 0);
    for (uint32_t i = 0; i < N; i++)
        b[i] = N - 1 - i;
    assert_false(msp_sequence_align(partner, &x, &y, &room));
    (void)check_partners(partner, a, N, b);
    for (uint32_t i = 0; i < N; i++) {
        a[i] = ((seed = seed * 1664525 + 1013904223) >> 9) % 30;
        b[i] = ((seed = seed * 1664525 + 1013904223) >> 9) % 30;
    }
    (void)msp_sequence_align(partner, &x, &y, &room);
    (void)check_partners(partner, a, N, b);
    msp_sequence_room_release(&room);
    free(a);
    free(b);
    free(partner);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

#define LEAF(shape, v)                                                                              \
    "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": " shape ", \"Max\": " #v \
    ", \"Min\": 0, \"Mean\": 0.5, \"Norm\": 1}"
#define CALL(name, shape, in, out) \
    "\"" name ".forward\": {\"input_args\": [" LEAF(shape, in) "], \"output\": [" LEAF(shape, out) "]}"
#define BACK(name, shape, in, out) \
    "\"" name ".backward\": {\"input\": [" LEAF(shape, in) "], \"output\": [" LEAF(shape, out) "]}"

#define CALL2(name, in, in2, out) \
    "\"" name                     \
    ".forward\": {\"input_args\": [" LEAF("[2]", in) "," LEAF("[2]", in2) "], \"output\": [" LEAF("[2]", out) "]}"
#define X CALL("Torch.x.0", "[2]", 0, 1)
#define Y CALL("Torch.y.0", "[2]", 9, 3)

typedef struct aligned {
    test_rows n, b;
    msp_stack *stacks[2];
    msp_align_side sides[2];
    msp_alignment a;
} aligned;

static void
align(aligned *t, const char *npu, const char *bench, const char *npu_stack, const char *bench_stack)
{
    const char *texts[2] = {npu_stack, bench_stack};

    *t = (aligned){.n = rows_of(npu), .b = rows_of(bench)};
    for (int i = 0; i < 2; i++)
        if (texts[i] != NULL)
            assert_int_equal(msp_stack_open_text(&t->stacks[i], texts[i], strlen(texts[i]), NULL), MSP_OK);
    t->sides[0] = (msp_align_side){&t->n.rows, t->stacks[0], NULL};
    t->sides[1] = (msp_align_side){&t->b.rows, t->stacks[1], NULL};
    assert_int_equal(msp_align_calls(&t->a, t->sides, NULL), MSP_OK);
}

static void
aligned_free(aligned *t)
{
    msp_alignment_release(&t->a);
    for (int i = 0; i < 2; i++)
        msp_stack_close(t->stacks[i]);
    rows_free(&t->n);
    rows_free(&t->b);
}

/* Each NPU call's partner by number, "-" for none. */
static void
expect_partners(const aligned *t, const char *want)
{
    char got[256] = "";

    for (size_t i = 0; i < t->n.rows.napis; i++) {
        char one[16] = "-";

        if (t->a.partner[i] != MATCH_NONE)
            snprintf(one, sizeof(one), "%u", t->a.partner[i]);
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", i > 0 ? " " : "", one);
    }
    assert_string_equal(got, want);
}

static void
expect_words(const aligned *t, size_t n, const char *first)
{
    msp_verdict_texts texts = {0};

    assert_int_equal(msp_verdict_words_alignment(&texts, &t->a, t->sides, NULL), MSP_OK);
    assert_int_equal(texts.count, n);
    if (n > 0)
        assert_string_equal(texts.items[0], first);
    msp_verdict_texts_release(&texts);
}

static void
a_call_more_shifts_no_partner_behind_it_and_backward_calls_follow(void **state)
{
    static const char npu[] =
        CALL("Torch.mul.0", "[2]", 1, 2) "," CALL("Torch.mul.1", "[3]", 1,
                                                  2) "," CALL("Torch.mul.2", "[4]", 1,
                                                              2) "," BACK("Torch.mul.2", "[4]", 1,
                                                                          2) "," BACK("Torch.mul.1", "[3]", 1,
                                                                                      2) "," BACK("Torch.mul.0", "[2]",
                                                                                                  1, 2);
    static const char bench[] =
        CALL("Torch.mul.0", "[2]", 1, 2) "," CALL("Torch.mul.1", "[4]", 1, 2) "," BACK("Torch.mul.1", "[4]", 1,
                                                                                       2) "," BACK("Torch.mul.0", "[2]",
                                                                                                   1, 2);
    aligned t;

    (void)state;
    align(&t, npu, bench, NULL, NULL);
    expect_partners(&t, "0 - 1 2 - 3");
    expect_words(&t, 1, "1 more Torch.mul in the NPU run");
    aligned_free(&t);
}

#define FRAME(line, code) "\"File /a/model.py, line " #line ", in forward, \\n " code "\""

static void
code_tells_which_of_equal_calls_is_one_more_and_where_it_stands(void **state)
{
    aligned t;

    align(&t, CALL("Torch.mul.0", "[2]", 1, 2) "," CALL("Torch.mul.1", "[2]", 1, 2), CALL("Torch.mul.0", "[2]", 1, 2),
          "{\"Torch.mul.0.forward\": [" FRAME(31, "y = y * mask") "], \"Torch.mul.1.forward\": [" FRAME(
              40, "y = y * scale") "]}",
          "{\"Torch.mul.0.forward\": [" FRAME(35, "y = y * scale") "]}");

    (void)state;
    expect_partners(&t, "- 0");
    expect_words(&t, 1, "1 more Torch.mul in the NPU run, at model.py:31");
    aligned_free(&t);
}

static void
calls_of_the_bench_alone_are_named_too(void **state)
{
    aligned t;

    (void)state;
    align(&t, CALL("Torch.mul.0", "[2]", 1, 2),
          CALL("Torch.mul.0", "[2]", 1, 2) "," CALL("Torch.abs.0", "[2]", 1, 2) "," CALL("Torch.abs.1", "[2]", 1, 2),
          NULL, NULL);
    expect_partners(&t, "0");
    expect_words(&t, 1, "2 more Torch.abs in the bench");
    aligned_free(&t);
}

static void
equal_streams_and_another_order_keep_their_partners(void **state)
{
    aligned t;

    align(&t, CALL("Torch.a.0", "[2]", 1, 2) "," CALL("Torch.b.0", "[2]", 1, 2) "," CALL("Torch.c.0", "[2]", 1, 2),
          CALL("Torch.b.0", "[2]", 1, 2) "," CALL("Torch.a.0", "[2]", 1, 2) "," CALL("Torch.c.0", "[2]", 1, 2), NULL,
          NULL);

    (void)state;
    expect_partners(&t, "1 0 2");
    expect_words(&t, 0, NULL);
    aligned_free(&t);
}

/* Other batch sizes: all shapes differ, and the names alone still say what is what. */
static void
shapes_that_differ_everywhere_leave_the_names(void **state)
{
    aligned t;

    (void)state;
    align(&t, CALL("Torch.a.0", "[2]", 1, 2) "," CALL("Torch.a.1", "[4]", 1, 2),
          CALL("Torch.a.0", "[6]", 1, 2) "," CALL("Torch.a.1", "[8]", 1, 2), NULL, NULL);
    expect_partners(&t, "0 1");
    aligned_free(&t);
}

/* matmul, softmax, matmul for one call: what goes in and what comes out is paired, by what is most alike. */
static void
a_replaced_block_is_paired_at_its_ends(void **state)
{
    static const char npu[] = X "," CALL("Torch.t.0", "[2]", 7, 70) "," CALL2("Torch.mm.0", 1, 70, 9) "," Y;
    static const char bench[] = X "," CALL2("Torch.whole.0", 1, 7, 9) "," Y;
    const msp_rows *rows[2];
    msp_replaced r;
    aligned t;

    (void)state;
    align(&t, npu, bench, NULL, NULL);
    rows[0] = &t.n.rows;
    rows[1] = &t.b.rows;
    expect_partners(&t, "0 - - 2");
    expect_words(&t, 1, "the NPU run calls Torch.t, Torch.mm where the bench calls Torch.whole");
    assert_int_equal(msp_replaced_find(&r, &t.a, rows, NULL), MSP_OK);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.nends, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(r.ends[i].input == (i < 2));
        assert_string_equal(cell_of(&rows[0]->rows[r.ends[i].npu].stats[MSP_STAT_MAX]),
                            cell_of(&rows[1]->rows[r.ends[i].bench].stats[MSP_STAT_MAX]));
    }
    msp_replaced_release(&r);
    aligned_free(&t);
}

static void
aligning_survives_without_memory(void **state)
{
    aligned t;
    msp_status st = MSP_E_NOMEM;
    int64_t n = 0;

    (void)state;
    align(&t, CALL("Torch.a.0", "[2]", 1, 2) "," CALL("Torch.b.0", "[2]", 1, 2), CALL("Torch.b.0", "[2]", 1, 2), NULL,
          NULL);
    for (; st != MSP_OK && n < 1000; n++) {
        msp_alignment a;

        msp_alloc_fail_after(n);
        st = msp_align_calls(&a, t.sides, NULL);
        msp_alloc_fail_after(-1);
        assert_true(st == MSP_OK || st == MSP_E_NOMEM);
        msp_alignment_release(&a);
    }
    assert_true(st == MSP_OK && n > 10);
    aligned_free(&t);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(as_many_items_meet_as_can_in_order),
        TEST(what_cannot_be_aligned_is_given_up_and_takes_no_square_of_time),
        TEST(a_call_more_shifts_no_partner_behind_it_and_backward_calls_follow),
        TEST(code_tells_which_of_equal_calls_is_one_more_and_where_it_stands),
        TEST(calls_of_the_bench_alone_are_named_too),
        TEST(equal_streams_and_another_order_keep_their_partners),
        TEST(shapes_that_differ_everywhere_leave_the_names),
        TEST(a_replaced_block_is_paired_at_its_ends),
        TEST(aligning_survives_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
