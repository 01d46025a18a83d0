/* page_texts.c - see page_texts.h. */
#include "report/write/page_texts.h"

#include "text/json.h"

enum { MAX_BYTES = 64 * 1024 * 1024 }; /* of all texts together */

bool
msp_page_texts_add(msp_page_texts *t, msp_str s, size_t most, uint32_t *id)
{
    msp_map_entry *e;
    char *copy;
    bool cut = s.len > most;

    if (cut)
        s.len = most;
    while (cut && s.len > 0 && ((unsigned char)s.p[s.len] & 0xc0) == 0x80)
        s.len--; /* not inside a character */
    e = msp_map_get(&t->map, s);
    if (e == NULL) {
        if (t->bytes + s.len > MAX_BYTES) {
            *id = 0;
            return true;
        }
        copy = msp_arena_text(&t->arena, s.len > 0 ? s.p : "", s.len);
        if (copy == NULL)
            return false;
        e = msp_map_put(&t->map, (msp_str){copy, s.len}, (int64_t)t->map.count, NULL);
        t->bytes += s.len;
    }
    if (e != NULL)
        *id = (uint32_t)e->value;
    return e != NULL;
}

void
msp_page_texts_write(const msp_page_texts *t, msp_buf *out)
{
    msp_json_writer w;

    msp_json_writer_init(&w, out, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < t->map.count; i++)
        msp_json_write_string(&w, t->map.entries[i].key);
    msp_json_end_array(&w);
}

void
msp_page_texts_release(msp_page_texts *t)
{
    msp_map_release(&t->map);
    msp_arena_release(&t->arena);
    *t = (msp_page_texts){0};
}
