/* test_online_wire.c - promises of online/wire.h and online/exchange.h: frames, and names of files. */
#include "unit.h"
#include "online/exchange.h"
#include "online/wire.h"

static msp_buf
verdict_frame(void)
{
    msp_buf b = {0};
    size_t begin = msp_wire_begin(&b, MSP_WIRE_VERDICT);

    msp_wire_put_u(&b, 7, 8);
    msp_wire_put_u(&b, 2, 1);
    msp_wire_put_text(&b, (msp_str){"row\r\n", 5});
    msp_wire_put_text(&b, (msp_str){"", 0});
    msp_wire_end(&b, begin);
    return b;
}

static void
a_frame_has_the_bytes_of_the_document(void **state)
{
    static const unsigned char want[] = {'M',  'S',  'P',  'O',  1, 7, 0, 0, 8, 0, 0, 0,
                                         0x0d, 0xd1, 0xc2, 0x2d, 5, 0, 0, 0, 0, 0, 0, 0};
    msp_buf b = {0};

    (void)state;
    msp_wire_put_numbers(&b, MSP_WIRE_ACK, (uint64_t[]){5}, 1);
    assert_int_equal(b.len, sizeof(want));
    assert_memory_equal(b.p, want, sizeof(want));
    msp_buf_release(&b);
}

static void
a_verdict_comes_back(void **state)
{
    msp_buf b = verdict_frame();
    msp_wire_verdict v;
    msp_wire_frame f;
    size_t used;

    (void)state;
    assert_int_equal(msp_wire_parse(&f, &used, b.p, b.len, NULL), MSP_OK);
    assert_int_equal(used, b.len);
    assert_int_equal(f.kind, MSP_WIRE_VERDICT);
    assert_int_equal(msp_wire_read_verdict(&v, f.payload, NULL), MSP_OK);
    assert_int_equal(v.number, 7);
    assert_int_equal(v.status, 2);
    assert_int_equal(v.result.len, 5);
    assert_memory_equal(v.result.p, "row\r\n", 5);
    assert_int_equal(v.details.len, 0);
    msp_buf_release(&b);
}

static void
the_beginning_of_a_frame_asks_for_more(void **state)
{
    msp_buf b = verdict_frame();
    msp_wire_frame f;
    size_t used = 1;

    (void)state;
    for (size_t n = 0; n < b.len; n++) {
        assert_int_equal(msp_wire_parse(&f, &used, b.p, n, NULL), MSP_OK);
        assert_int_equal(used, 0);
    }
    msp_buf_release(&b);
}

/* A wrong length may ask for more, and then the checksum or the length is wrong. */
static void
a_byte_that_is_wrong_is_never_accepted(void **state)
{
    msp_buf b = verdict_frame();
    msp_wire_frame f;
    size_t used;

    (void)state;
    for (size_t i = 0; i < b.len; i++)
        for (int bit = 0; bit < 8; bit++) {
            msp_status st;

            b.p[i] ^= (char)(1 << bit);
            st = msp_wire_parse(&f, &used, b.p, b.len, NULL);
            if (i == 5 && st == MSP_OK)
                assert_true(f.kind != MSP_WIRE_VERDICT); /* another kind, whose reader judges the payload */
            else
                assert_true(st == MSP_E_FORMAT || (i >= 8 && i < 12 && used == 0));
            b.p[i] ^= (char)(1 << bit);
        }
    msp_buf_release(&b);
}

static void
fields_end_where_the_payload_ends(void **state)
{
    msp_wire_verdict v;
    msp_wire_hello h;
    uint64_t n[2];
    msp_buf b = {0};

    (void)state;
    msp_wire_put_u(&b, 7, 8);
    msp_wire_put_u(&b, 2, 1);
    msp_wire_put_u(&b, 4, 4); /* a text of four bytes, of which there are none */
    assert_int_equal(msp_wire_read_verdict(&v, msp_buf_view(&b), NULL), MSP_E_FORMAT);
    assert_int_equal(msp_wire_read_hello(&h, msp_buf_view(&b), NULL), MSP_E_FORMAT);
    assert_int_equal(msp_wire_read_numbers(n, 1, msp_buf_view(&b), NULL), MSP_E_FORMAT);
    assert_int_equal(msp_wire_read_numbers(n, 2, (msp_str){b.p, 8}, NULL), MSP_E_FORMAT);
    assert_int_equal(msp_wire_read_numbers(n, 1, (msp_str){b.p, 8}, NULL), MSP_OK);
    msp_buf_release(&b);
}

static void
only_names_of_the_protocol_are_known_in_a_folder(void **state)
{
    static const char *const others[] = {"",
                                         "checker.alive",
                                         "0123456789abcdef0123456789abcdef",
                                         "0123456789abcdef0123456789abcdef.call",
                                         "0123456789abcdef0123456789abcdef-.call",
                                         "0123456789abcdef0123456789abcdef--1.call",
                                         "0123456789abcdef0123456789abcdef-1.call.77.1.tmp",
                                         "0123456789abcdef0123456789abcdef-1.end",
                                         "0123456789ABCDEF0123456789abcdef-1.call",
                                         "0123456789abcdef0123456789abcde-1.call"};
    msp_exchange_name n = msp_exchange_parse("0123456789abcdef0123456789abcdef-17.verdict");
    char path[256];

    (void)state;
    assert_int_equal(n.kind, MSP_FILE_VERDICT);
    assert_int_equal(n.number, 17);
    assert_string_equal(n.job, "0123456789abcdef0123456789abcdef");
    assert_int_equal(msp_exchange_parse("0123456789abcdef0123456789abcdef.end").kind, MSP_FILE_END);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        assert_int_equal(msp_exchange_parse(others[i]).kind, MSP_FILE_OTHER);
    assert_int_equal(msp_exchange_path(path, sizeof(path), "/f", n.job, 3, "step", NULL), MSP_OK);
    assert_string_equal(path, "/f/0123456789abcdef0123456789abcdef-3.step");
    assert_int_equal(msp_exchange_path(path, 20, "/f", n.job, 3, "step", NULL), MSP_E_INVALID);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_frame_has_the_bytes_of_the_document),  TEST(a_verdict_comes_back),
        TEST(the_beginning_of_a_frame_asks_for_more), TEST(a_byte_that_is_wrong_is_never_accepted),
        TEST(fields_end_where_the_payload_ends),      TEST(only_names_of_the_protocol_are_known_in_a_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
