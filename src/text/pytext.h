/* pytext.h - JSON values and text as Python's str() and repr() write them: the tables hold such text. */
#ifndef MSP_TEXT_PYTEXT_H
#define MSP_TEXT_PYTEXT_H

#include "text/json.h"

/* repr() of a str: quotes chosen and characters escaped as Python does. */
void msp_py_repr_text(msp_buf *out, msp_str s);

/* str() of what json.load() makes of v: "None", "True", "2.0", "[1, 'a']", "{'k': 1}"; a str is itself. */
void msp_py_str(msp_buf *out, const msp_json *v);

/* The text of its class: "<class 'int'>". NULL (no such value) is None's. */
const char *msp_py_class(const msp_json *v);

#endif
