/*
 * lines.h - a dump of the older tools while it is written: text, one JSON array per line, that only ever grows.
 *
 * ptdbg_ascend    ["Torch_relu_0_forward_input.0", 1, [], "torch.float32", [5, 3], [max, min, mean]]
 *                 with the elements in <data_dir>/Torch_relu_0_forward_input.0.npy; a mark above 100 (overflow) leaves
 * the statistics out. Numbers: "<class 'int'>", "[]", [7, 7, 7]. Stacks: [name, [[path, line, function, source], ...]],
 * innermost first. torch_npu.hooks ["Torch_relu_forward_input.0", [all elements as float32], "torch.float32", [5, 3]]
 *
 * A line is whole or, when the writer is killed in the middle of it, cut: opened again, the file loses its cut line.
 */
#ifndef MSP_COLLECT_LINES_H
#define MSP_COLLECT_LINES_H

#include "collect/record.h"

/* A call stack as the side file holds it: texts. In a unit of lines four per frame: path, line, function, source. */
typedef struct unit_stack {
    const unsigned char *body; /* NULL: it is not at hand, and shows no frames */
    size_t size;
    uint64_t at; /* where it stands in the side file */
} unit_stack;

static inline record_reader
msp_stack_texts(const unit_stack *s)
{
    return (record_reader){s->body, s->body == NULL ? NULL : s->body + s->size, false};
}

typedef struct msp_lines {
    msp_unit_kind kind;
    int64_t mark;
    int fd;      /* -1: closed */
    int data_fd; /* the folder of the .npy files; -1: none */
    char *path, *data_dir;
    msp_buf scratch;
} msp_lines;

#define MSP_LINES_NONE ((msp_lines){.fd = -1, .data_fd = -1})

/* Open dir/file for appending; data_dir (empty: none) is created when missing. */
MSP_CHECK msp_status msp_lines_open(msp_lines *out, msp_unit_kind kind, const char *dir, msp_str file, msp_str data_dir,
                                    int64_t mark, msp_error *err);

/*
 * Append the lines of the record at r to text, and write the elements that travel with it to their files. stack is what
 * a null stands for, NULL: such a line is left out. A record that is not well-formed adds nothing and sets *damaged.
 */
MSP_CHECK msp_status msp_lines_add(msp_lines *l, msp_buf *text, record_reader *r, const unit_stack *stack,
                                   bool *damaged, msp_error *err);

/* Write text, whole lines, to the end of the file. */
MSP_CHECK msp_status msp_lines_append(msp_lines *l, msp_str text, msp_error *err);

/* Accepts MSP_LINES_NONE and leaves it. */
void msp_lines_close(msp_lines *l);

#endif
