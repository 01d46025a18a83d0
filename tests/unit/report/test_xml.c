/* test_xml.c - promises of report/read/xml.h. Every document is read from a source that gives 1, 2, 3 ... bytes at a
 * time.
 */
#include "hostile.h"
#include "report/read/xml.h"

typedef struct source {
    const char *p;
    size_t left, step;
} source;

static msp_status
give(char *to, size_t room, size_t *got, void *payload, msp_error *err)
{
    source *s = payload;
    size_t n = s->left < s->step ? s->left : s->step;

    (void)err;
    if (n > room)
        n = room;
    memcpy(to, s->p, n);
    s->p += n;
    s->left -= n;
    *got = n;
    return MSP_OK;
}

/* Events as text: <name|a=value>, </name>, and text as it is. */
static msp_status
trace(msp_buf *out, const char *p, size_t size, size_t step, msp_error *err)
{
    source s = {p, size, step};
    msp_xml_event event = MSP_XML_TEXT;
    msp_status st;
    msp_xml x;

    st = msp_xml_open(&x, give, &s, err);
    while (st == MSP_OK && event != MSP_XML_DONE) {
        msp_str value;

        st = msp_xml_next(&x, &event, err);
        if (st != MSP_OK || event == MSP_XML_DONE)
            break;
        if (event == MSP_XML_TEXT) {
            msp_buf_str(out, x.text);
            continue;
        }
        msp_buf_text(out, event == MSP_XML_START ? "<" : "</");
        msp_buf_str(out, x.name);
        if (event == MSP_XML_START && msp_xml_attribute(&x, "a", &value)) {
            msp_buf_text(out, "|a=");
            msp_buf_str(out, value);
        }
        msp_buf_char(out, '>');
    }
    msp_xml_close(&x);
    if (st == MSP_OK)
        st = msp_buf_status(out, err);
    return st;
}

static void
assert_events(const char *xml, const char *expected)
{
    const size_t steps[] = {1, 2, 3, 5, 7, 1000};

    for (size_t i = 0; i < 6; i++) {
        msp_buf out = {0};
        msp_error err = {0};

        if (trace(&out, xml, strlen(xml), steps[i], &err) != MSP_OK)
            fail_msg("%s: %s", xml, err.message);
        assert_string_equal(out.p, expected);
        msp_buf_release(&out);
    }
}

static void
assert_refused(const char *xml, msp_status status, const char *message)
{
    const size_t steps[] = {1, 2, 1000};

    for (size_t i = 0; i < 3; i++) {
        msp_buf out = {0};
        msp_error err = {0};

        assert_int_equal(trace(&out, xml, strlen(xml), steps[i], &err), status);
        if (strstr(err.message, message) == NULL)
            fail_msg("%s: \"%s\" is not in \"%s\"", xml, message, err.message);
        msp_buf_release(&out);
    }
}

static void
elements_attributes_and_text_come_in_order(void **state)
{
    (void)state;
    assert_events("<a/>", "<a></a>");
    assert_events("<a>x<b a='1'/>y<c a = \"2 > 1\" b=''>z</c></a>", "<a>x<b|a=1></b>y<c|a=2 > 1>z</c></a>");
    assert_events("<x:a xmlns:x='u'><x:b x:a='1'></x:b ></x:a>", "<a><b|a=1></b></a>");
    assert_events("<\xE4\xBD\xA0.-_1/>", "<\xE4\xBD\xA0.-_1></\xE4\xBD\xA0.-_1>");
}

static void
references_and_line_ends_are_decoded(void **state)
{
    (void)state;
    assert_events("<a>&amp;&lt;&gt;&quot;&apos;&#65;&#x4F60;&#x1F600;</a>",
                  "<a>&<>\"'A\xE4\xBD\xA0\xF0\x9F\x98\x80</a>");
    assert_events("<a a='&lt;&#10;'>1\r\n2\r3\n4\r\r\n</a>", "<a|a=<\n>1\n2\n3\n4\n\n</a>");
    assert_events("<a><![CDATA[<b>&amp;]] >\r\n]]></a>", "<a><b>&amp;]] >\n</a>");
    assert_events("<a><![CDATA[]]></a>", "<a></a>");
}

static void
what_is_no_content_is_skipped(void **state)
{
    (void)state;
    assert_events(
        "\xEF\xBB\xBF<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<!-- <a> -- --><a><?pi > ?>x<!----></a>\n<!--e-->",
        "\n<a>x</a>\n");
}

static void
documents_that_are_not_well_formed_are_refused(void **state)
{
    const char *bad[] = {"",
                         " ",
                         "x",
                         "<a>",
                         "<a></b>",
                         "<a></a></a>",
                         "<a/><b/>",
                         "<a/>x",
                         "<a b>",
                         "<a b=c/>",
                         "<a b='c/>",
                         "<a b=''c=''/>",
                         "< a/>",
                         "<a<b/>",
                         "<a/",
                         "<",
                         "<a>&</a>",
                         "<a>&x;</a>",
                         "<a>&amp</a>",
                         "<a>&#;</a>",
                         "<a>&#x;</a>",
                         "<a>&#x110000;</a>",
                         "<a>&#0;</a>",
                         "<a>&#xD800;</a>",
                         "<a>&#xFFFE;</a>",
                         "<a>\x01</a>",
                         "<a a='\x1F'/>",
                         "<a a='&no;'/>",
                         "<a><!-- </a>",
                         "<a><![CDATA[ ]] ></a>",
                         "<a><?pi </a>",
                         "</a>",
                         "<a></a x>",
                         "<>",
                         "<a></>",
                         "<a>&#99999999999;</a>",
                         "<a:b></c:b>"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused(bad[i], MSP_E_FORMAT, "of the XML");
}

static void
what_is_not_read_is_said(void **state)
{
    (void)state;
    assert_refused("<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>", MSP_E_UNSUPPORTED,
                   "document type declaration at byte 0");
    assert_refused("<?xml version='1.0' encoding='UTF-16'?><a/>", MSP_E_UNSUPPORTED, "encoding UTF-16");
    assert_refused("\xFF\xFE<", MSP_E_UNSUPPORTED, "UTF-16");
}

static void
errors_say_where(void **state)
{
    (void)state;
    assert_refused("<a>12345&no;</a>", MSP_E_FORMAT, "at byte 8 of the XML");
    assert_refused("<a><b></c></a>", MSP_E_FORMAT, "an end tag that closes nothing at byte 6");
}

static void
nesting_and_markup_have_limits(void **state)
{
    enum { LONG = MSP_XML_MAX_MARKUP + 100 };
    char *xml = malloc(LONG + 10);
    msp_buf deep = {0}, out = {0};
    msp_error err;

    (void)state;
    for (int i = 0; i < MSP_XML_MAX_DEPTH + 1; i++)
        msp_buf_text(&deep, "<a>");
    assert_refused(deep.p, MSP_E_LIMIT, "nested more than 64 deep");
    msp_buf_release(&deep);

    memset(xml, 'x', LONG);
    memcpy(xml, "<a a='", 6);
    memcpy(xml + LONG, "'/>", 4);
    assert_int_equal(trace(&out, xml, strlen(xml), 4096, &err), MSP_E_LIMIT);
    assert_non_null(strstr(err.message, "without an end at byte 0"));
    memset(xml, 'x', LONG); /* text has no limit: it comes in pieces */
    memcpy(xml, "<a>", 3);
    memcpy(xml + LONG, "</a>", 5);
    assert_int_equal(trace(&out, xml, strlen(xml), 4096, &err), MSP_OK);
    assert_int_equal(out.len, LONG - 3 + 7);
    msp_buf_release(&out);
    free(xml);
}

static msp_status
trace_once(const void *p, size_t size)
{
    msp_buf out = {0};
    msp_status st = trace(&out, p, size, 64, NULL);

    msp_buf_release(&out);
    return st;
}

static void
any_damage_is_survived(void **state)
{
    const char *xml = "<?xml version='1.0'?><a b=\"c&lt;\"><!--x--><d e='f'/>t&#65;<![CDATA[g]]>\r\n</a>";

    (void)state;
    assert_every_cut_fails(trace_once, xml, strlen(xml), strlen(xml));
    assert_true(flip_every_bit(trace_once, xml, strlen(xml)) > 100);
    fail_every_allocation(trace_once, xml, strlen(xml));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(elements_attributes_and_text_come_in_order),
        TEST(references_and_line_ends_are_decoded),
        TEST(what_is_no_content_is_skipped),
        TEST(documents_that_are_not_well_formed_are_refused),
        TEST(what_is_not_read_is_said),
        TEST(errors_say_where),
        TEST(nesting_and_markup_have_limits),
        TEST(any_damage_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
