/*
 * yaml.h - YAML files (mappings for compare, API lists) as the same values that json.h has.
 *
 * Parsed by libyaml into a msp_json_doc, so that one set of accessors serves both. Scalars follow YAML 1.1 as PyYAML's
 * safe_load reads them: null, true/false (yes/no, on/off), integers, floats; everything else is a string. Depth at most
 * 64, text at most 64 MiB, aliases refused (they make small files explode), keys must be scalars. Several documents: an
 * error.
 */
#ifndef MSP_JSON_YAML_H
#define MSP_JSON_YAML_H

#include "json/json.h"

/* On failure the document is empty and err says line and column. An empty text gives root NULL. The document owns all
 * its text. */
MSP_CHECK msp_status msp_yaml_parse(msp_json_doc *out, const char *text, size_t size, msp_error *err);

#endif
