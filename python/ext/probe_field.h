/*
 * probe_field.h - where torch's own objects have their fields: searched for in samples of which it is known what must
 * stand there (selftest.py).
 */
#ifndef MSP_PY_PROBE_FIELD_H
#define MSP_PY_PROBE_FIELD_H

#include <stdbool.h>
#include <stddef.h>

/* How far fields of a tensor are searched for: torch 2.13's takes 184 bytes. */
enum { TENSOR_BYTES = 512 };

/* n samples of one kind, size bytes each; lent. */
typedef struct field_samples {
    const void *items;
    size_t size;
    int n;
} field_samples;

/* Whether the sample has the field at byte at. It is asked for places that may lie behind the object. */
typedef bool field_test(size_t at, const void *sample);

/* The only place below end, in steps of so many bytes, where all samples have the field; false: there is none, or there
 * are several. */
bool msp_field_find(size_t *out, const field_samples *in, size_t step, size_t end, field_test *has);

/* Memory of this process, at an address that may mean nothing; false: there is none. */
bool msp_field_peek(void *out, const void *address, size_t size);

#endif
