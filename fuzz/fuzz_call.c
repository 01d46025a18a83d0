/* fuzz_call.c - a call as a sender gives it to the checker: names, records and tensors in memory of the peer's making.
 */
#include <stdint.h>
#include <string.h>
#include "check.h"
#include "msprobe/online.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_inside(const void *p, size_t n, const uint8_t *data, size_t size)
{
    const uint8_t *at = p;

    CHECK(n == 0 || (at >= data && n <= size && (size_t)(at - data) <= size - n));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    msp_online_call c;
    char text[80];

    if (msp_online_call_parse(&c, data, size, NULL) != MSP_OK)
        return 0;
    CHECK(c.name.len > 0 && memchr(c.name.p, '/', c.name.len) == NULL);
    check_inside(c.forward.p, c.forward.len, data, size);
    check_inside(c.backward.p, c.backward.len, data, size);
    check_inside(c.reason.p, c.reason.len, data, size);
    for (size_t i = 0; i < c.ntensors; i++) {
        const msp_tensor *t = &c.tensors[i].view;

        check_inside(c.tensors[i].name.p, c.tensors[i].name.len, data, size);
        check_inside(t->data, (size_t)t->numel * msp_dtype_size(t->dtype), data, size);
        if (t->numel > 0)
            CHECK(msp_dtype_format(text, t->dtype, msp_tensor_at(t, t->numel - 1)) < 80);
    }
    msp_online_call_release(&c);
    return 0;
}
