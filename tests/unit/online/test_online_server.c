/* test_online_server.c - promises of the checker in msprobe/online.h, by a sender that is made of frames. */
#include "unit.h"
#include <dirent.h>
#include <poll.h>
#include <sys/stat.h>
#include "core/path.h"
#include "online/call.h"
#include "online/conn.h"

enum { LIMIT = 1000, PATIENCE_MS = 60000 };

static const unsigned char JOB[MSP_WIRE_JOB] = "a job of sixteen";
static int runs;

static msp_online_server *
serve(uint64_t limit)
{
    char dir[64];
    msp_online_serving opt = {.address = {.host = "127.0.0.1"},
                              .stamp = "20260101000000",
                              .ranks = (uint64_t[]){0, 4},
                              .nranks = 2,
                              .limit = limit};
    msp_online_server *s;
    msp_error err;

    snprintf(dir, sizeof(dir), "out%d", ++runs);
    opt.dir = scratch_path(dir);
    if (msp_online_serve(&s, &opt, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return s;
}

static msp_conn
greet(msp_online_server *s, uint64_t rank)
{
    msp_online_served served;
    msp_conn c;
    size_t begin;

    msp_online_server_count(s, &served);
    assert_int_equal(msp_conn_connect(&c, "127.0.0.1", served.port, NULL, NULL), MSP_OK);
    begin = msp_wire_begin(&c.out, MSP_WIRE_HELLO);
    msp_wire_put_u(&c.out, 1, 2);
    msp_wire_put_u(&c.out, 1, 2);
    msp_buf_add(&c.out, JOB, sizeof(JOB));
    msp_wire_put_u(&c.out, rank, 8);
    msp_wire_put_text(&c.out, MSP_STR("a test"));
    msp_wire_end(&c.out, begin);
    return c;
}

/* The next frame of this kind; others are passed over. False: the connection ended before. */
static bool
hear(msp_conn *c, msp_wire_kind kind, msp_wire_frame *f)
{
    const int64_t until = msp_now_ms() + PATIENCE_MS;
    msp_status st = MSP_OK;

    while (msp_now_ms() < until) {
        struct pollfd p = {c->fd, msp_conn_events(c, true), 0};

        while (msp_conn_next(c, f, &st, NULL))
            if (f->kind == kind)
                return true;
        assert_int_equal(st, MSP_OK);
        poll(&p, 1, 100);
        if (msp_conn_pump(c, true, NULL) != MSP_OK)
            return false;
    }
    fail_msg("waited in vain for a frame of kind %d", (int)kind);
    return false;
}

static void
send_call(msp_conn *c, uint64_t number, const char *name)
{
    const msp_call_head head = {.number = number,
                                .rank = 0,
                                .name = msp_str_of(name),
                                .reason = MSP_STR("none"),
                                .forward = {"", 0},
                                .backward = {"", 0}};
    msp_call_parts parts;
    const void *p;
    size_t begin, n;

    assert_int_equal(msp_call_build(&parts, &head, scratch_dir(), NULL, 0, NULL), MSP_OK);
    msp_wire_put_numbers(&c->out, MSP_WIRE_CALL, (uint64_t[]){number, parts.size}, 2);
    for (uint64_t at = 0; (n = msp_call_span(&parts, at, 16, &p)) > 0; at += n) {
        begin = msp_wire_begin(&c->out, MSP_WIRE_DATA);
        msp_buf_add(&c->out, p, n);
        msp_wire_end(&c->out, begin);
    }
    msp_call_release(&parts);
    while (msp_conn_waiting(c) > 0) {
        assert_int_equal(msp_conn_pump(c, false, NULL), MSP_OK);
        poll(&(struct pollfd){c->fd, POLLOUT, 0}, 1, 100);
    }
}

static msp_online_work
next(msp_online_server *s)
{
    const int64_t until = msp_now_ms() + PATIENCE_MS;
    msp_online_work w;
    msp_status st;

    do
        st = msp_online_next(s, &w, 100, NULL);
    while (st == MSP_E_NOT_FOUND && msp_now_ms() < until);
    assert_int_equal(st, MSP_OK);
    return w;
}

static void
answer(msp_online_server *s, const msp_online_work *w)
{
    char row[600];
    int n = snprintf(row, sizeof(row), "%s,pass, ,\r\n", w->name);

    assert_int_equal(msp_online_answer(s, w->id, MSP_PRECHECK_PASS, row, (size_t)n, "", 0, NULL), MSP_OK);
}

static uint64_t
calls_of(msp_online_server *s)
{
    msp_online_served served;

    msp_online_server_count(s, &served);
    return served.calls;
}

static void
a_call_is_handed_out_and_its_verdict_goes_back(void **state)
{
    msp_online_server *s = serve(1 << 20);
    msp_conn c = greet(s, 0);
    msp_wire_verdict v;
    msp_online_call call;
    msp_online_work w;
    msp_wire_frame f;
    char result[4096], details[4096];

    (void)state;
    assert_true(hear(&c, MSP_WIRE_WELCOME, &f));
    send_call(&c, 8, "Torch.add.0");
    w = next(s);
    assert_string_equal(w.name, "Torch.add.0");
    assert_int_equal(msp_online_call_open(&call, w.path, NULL), MSP_OK);
    assert_int_equal(call.number, 8);
    msp_online_call_release(&call);
    answer(s, &w);
    assert_true(hear(&c, MSP_WIRE_VERDICT, &f));
    assert_int_equal(msp_wire_read_verdict(&v, f.payload, NULL), MSP_OK);
    assert_int_equal(v.number, 8);
    assert_int_equal(v.status, MSP_PRECHECK_PASS);
    assert_memory_equal(v.result.p, "Torch.add.0,pass, ,\r\n", v.result.len);
    assert_int_equal(access(w.path, F_OK), -1);
    assert_true(msp_online_server_file(s, 0, result, details));
    assert_non_null(strstr(result, "/step0/accuracy_checking_result_20260101000000_rank0.csv"));
    assert_false(msp_online_server_file(s, 1, result, details));
    assert_int_equal(msp_online_answer(s, w.id, MSP_PRECHECK_PASS, "", 0, "", 0, NULL), MSP_E_INVALID);
    msp_conn_close(&c);
    msp_online_server_close(s);
}

/* The connection broke before the verdict came: the sender sends the call again. */
static void
a_call_that_comes_again_is_not_checked_again(void **state)
{
    msp_online_server *s = serve(1 << 20);
    msp_conn c = greet(s, 0);
    msp_online_work w;
    msp_wire_frame f;

    (void)state;
    assert_true(hear(&c, MSP_WIRE_WELCOME, &f));
    send_call(&c, 8, "Torch.add.0");
    w = next(s);
    msp_conn_close(&c);
    answer(s, &w); /* to nobody */
    for (int again = 0; again < 2; again++) {
        c = greet(s, 0);
        assert_true(hear(&c, MSP_WIRE_WELCOME, &f));
        send_call(&c, 8, "Torch.add.0");
        assert_true(hear(&c, MSP_WIRE_VERDICT, &f));
        assert_int_equal(calls_of(s), 1);
        msp_conn_close(&c);
    }
    c = greet(s, 0);
    assert_true(hear(&c, MSP_WIRE_VERDICT, &f)); /* nobody has acknowledged it */
    msp_wire_put_numbers(&c.out, MSP_WIRE_ACK, (uint64_t[]){8}, 1);
    send_call(&c, 8, "Torch.add.0"); /* after that the number would be a new call's */
    assert_string_equal(next(s).name, "Torch.add.0");
    msp_conn_close(&c);
    msp_online_server_close(s);
}

/* Three calls exceed the bound. That the checker had turns in between is seen by others whom it greets. */
static void
when_too_much_waits_nothing_more_is_read(void **state)
{
    msp_online_server *s = serve(250);
    msp_conn c = greet(s, 0);
    msp_online_work w;
    msp_wire_frame f;

    (void)state;
    assert_true(hear(&c, MSP_WIRE_WELCOME, &f));
    for (uint64_t n = 0; n < 6; n++)
        send_call(&c, n, "Torch.add.0");
    w = next(s);
    for (uint64_t before = 0; before != calls_of(s);) {
        before = calls_of(s);
        for (int i = 0; i < 5; i++) {
            msp_conn other = greet(s, 9);

            assert_true(hear(&other, MSP_WIRE_REFUSED, &f));
            msp_conn_close(&other);
        }
    }
    assert_in_range(calls_of(s), 2, 5);
    for (int i = 0; i < 6; i++) {
        answer(s, &w);
        if (i < 5)
            w = next(s);
    }
    assert_int_equal(calls_of(s), 6);
    msp_conn_close(&c);
    msp_online_server_close(s);
}

static void
it_is_over_when_all_ranks_have_said_so(void **state)
{
    msp_online_server *s = serve(1 << 20);
    msp_conn c = greet(s, 0), d;
    msp_online_work w;
    msp_wire_frame f;
    msp_error err;
    unsigned char other[sizeof(JOB)];

    (void)state;
    assert_true(hear(&c, MSP_WIRE_WELCOME, &f));
    msp_wire_put_numbers(&c.out, MSP_WIRE_END, NULL, 0);
    assert_true(hear(&c, MSP_WIRE_BYE, &f));
    assert_int_equal(msp_online_next(s, &w, 0, &err), MSP_E_NOT_FOUND);
    memcpy(other, JOB, sizeof(other));
    other[0] ^= 1;
    d = greet(s, 4); /* a job is one rank's */
    memcpy(d.out.p + MSP_WIRE_HEADER + 4, other, sizeof(other));
    msp_wire_end(&d.out, 0);
    assert_true(hear(&d, MSP_WIRE_WELCOME, &f));
    msp_wire_put_numbers(&d.out, MSP_WIRE_END, NULL, 0);
    assert_true(hear(&d, MSP_WIRE_BYE, &f));
    assert_int_equal(msp_online_next(s, &w, 1000, &err), MSP_E_CANCELLED);
    msp_conn_close(&c);
    msp_conn_close(&d);
    msp_online_server_close(s);
}

static void
an_address_that_is_not_safe_is_refused(void **state)
{
    const msp_online_serving none = {.address = {.host = "0.0.0.0"}, .dir = scratch_dir(), .stamp = "2"};
    msp_online_serving opt = none;
    msp_online_server *s;
    msp_error err;

    (void)state;
    assert_int_equal(msp_online_serve(&s, &opt, &err), MSP_E_INVALID);
    assert_non_null(strstr(err.message, "without tls_path only 127.0.0.1 is allowed"));
    opt.address = (msp_online_address){.folder = scratch_path("none")};
    assert_int_equal(msp_online_serve(&s, &opt, &err), MSP_E_INVALID);
    opt.address = (msp_online_address){.host = "127.0.0.1", .tls = scratch_dir()};
    assert_int_not_equal(msp_online_serve(&s, &opt, &err), MSP_OK);
    assert_null(s);
    assert_false(msp_host_is_here("128.0.0.1"));
    assert_false(msp_host_is_here("127.0.0.1.example"));
    assert_true(msp_host_is_here("127.8.0.1"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_call_is_handed_out_and_its_verdict_goes_back), TEST(a_call_that_comes_again_is_not_checked_again),
        TEST(when_too_much_waits_nothing_more_is_read),       TEST(it_is_over_when_all_ranks_have_said_so),
        TEST(an_address_that_is_not_safe_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
