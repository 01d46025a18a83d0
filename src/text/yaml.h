/*
 * yaml.h - YAML files (mappings for compare, API lists) as the same values that json.h has.
 *
 * Parsed by libyaml into a msp_json_doc, so that one set of accessors serves both. Scalars follow YAML 1.1 as PyYAML's
 * safe_load reads them: null, true/false (yes/no, on/off), integers (decimal, 0b, 0x, octal 010, 1:30 as sixties, with
 * underscores), floats (with a point; .inf, .nan); quoted ones and everything else are strings. Numbers are stored as
 * JSON writes them: 0x1F has the text "31", 1_000.5 "1000.5", -.inf "-Infinity".
 *
 * Where this differs from safe_load: keys keep their text ("yes", "012"); dates stay strings; integers in other bases
 * than ten that need more than 64 bits stay strings; repeated keys are all there, as in JSON.
 *
 * Refused, with line and column: aliases (they make small files explode), merge keys, keys that are not scalars, tags
 * other than !!str !!int !!float !!bool !!null !!seq !!map, a second document; depth beyond 64, texts beyond 64 MiB,
 * trees beyond the text's size plus 128 MiB, more than 100 times %TAG, anything but UTF-8. libyaml itself holds a few
 * tokens and one scalar at a time, in a buffer that doubles: another 64 MiB beyond the text's size at most.
 *
 * msp_json_position() of a list or mapping is where its first item begins: block style has no bracket to point at.
 */
#ifndef MSP_JSON_YAML_H
#define MSP_JSON_YAML_H

#include "text/json.h"

/* On failure the document is empty and err says line and column. An empty text gives root NULL. The document owns all
 * its text. */
MSP_CHECK msp_status msp_yaml_parse(msp_json_doc *out, const char *text, size_t size, msp_error *err);

#endif
