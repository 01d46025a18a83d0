/* terminal.h - colours, widths and text that is safe to show. */
#ifndef MSP_CLI_TERMINAL_H
#define MSP_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum msp_style {
    MSP_STYLE_PLAIN = 0,
    MSP_STYLE_BOLD,
    MSP_STYLE_DIM,
    MSP_STYLE_RED,
    MSP_STYLE_GREEN,
    MSP_STYLE_YELLOW,
    MSP_STYLE_CYAN
} msp_style;

/*
 * Decide once, before anything is printed, whether stdout and stderr get colours. forbidden is --no-color; otherwise
 * NO_COLOR, CLICOLOR_FORCE, CLICOLOR and TERM are asked, in this order, and then whether the stream is a terminal.
 */
void msp_term_init(bool forbidden);

/* Columns of the terminal behind stdout, or stderr; 80 when there is none. Never below 40. */
int msp_term_width(FILE *stream);

bool msp_term_is_tty(FILE *stream);

/* The sequences that switch a style on and off on this stream; "" where it has no colours. */
const char *msp_term_on(FILE *stream, msp_style style);
const char *msp_term_off(FILE *stream);

/* Print text in a style. */
void msp_term_put(FILE *stream, msp_style style, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/*
 * Columns that len bytes of UTF-8 take: East Asian wide characters two, combining marks none, a byte that is no UTF-8
 * one.
 */
size_t msp_text_width(const char *text, size_t len);

/* Bytes of the character at text, at least 1; *ok is false when they are no UTF-8. left must not be 0. */
size_t msp_text_char(const char *text, size_t left, bool *ok);

/* The longest start of text, in bytes, that takes no more than columns; whole characters. */
size_t msp_text_fit(const char *text, size_t len, size_t columns);

/*
 * Copy text into buf with everything that could move the cursor or hide text (control characters, escapes,
 * bidirectional overrides, broken UTF-8) replaced by '?'. Names come from files that others wrote. Cut at a whole
 * character when size is too small. Returns buf.
 */
const char *msp_text_safe(char *buf, size_t size, const char *text);

/* Print text broken at spaces into lines of at most width columns, each after indent spaces but the first. */
void msp_text_wrap(FILE *stream, const char *text, int indent, int width);

#endif
