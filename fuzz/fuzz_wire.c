/*
 * fuzz_wire.c - the frames of online run_ut, from any peer: whatever is accepted must be what this side would send.
 *
 * The first byte decides: 0, the rest is what came over the connection; another one, it is a kind of frame and the rest
 * its payload, for fuzzers that cannot guess a checksum.
 */
#include <stdint.h>
#include <string.h>
#include "check.h"
#include "online/exchange.h"
#include "online/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
read_payload(const msp_wire_frame *f)
{
    msp_wire_verdict v;
    msp_wire_hello h;
    uint64_t numbers[2];

    if (msp_wire_read_hello(&h, f->payload, NULL) == MSP_OK)
        CHECK(h.program.len <= f->payload.len);
    if (msp_wire_read_verdict(&v, f->payload, NULL) == MSP_OK)
        CHECK(v.result.len + v.details.len + 17 == f->payload.len);
    for (int n = 0; n <= 2; n++)
        CHECK((msp_wire_read_numbers(numbers, n, f->payload, NULL) == MSP_OK) == (f->payload.len == (size_t)n * 8));
}

static void
read_frames(const uint8_t *data, size_t size)
{
    msp_wire_frame f;
    size_t used;

    while (msp_wire_parse(&f, &used, data, size, NULL) == MSP_OK && used > 0) {
        msp_buf again = {0};
        size_t begin = msp_wire_begin(&again, f.kind);

        msp_buf_str(&again, f.payload);
        msp_wire_end(&again, begin);
        CHECK(again.failed || (again.len == used && memcmp(again.p, data, used) == 0));
        msp_buf_release(&again);
        read_payload(&f);
        data += used;
        size -= used;
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[64];

    if (size == 0)
        return 0;
    if (data[0] == 0) {
        read_frames(data + 1, size - 1);
    } else {
        msp_wire_frame f = {(msp_wire_kind)data[0], {(const char *)data + 1, size - 1}};

        read_payload(&f);
    }
    snprintf(name, sizeof(name), "%.*s", (int)(size < 60 ? size : 60), (const char *)data);
    (void)msp_exchange_parse(name);
    return 0;
}
