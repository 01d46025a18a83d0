/* yaml.c - see yaml.h. */
#include "json/yaml.h"

msp_status
msp_yaml_parse(msp_json_doc *out, const char *text, size_t size, msp_error *err)
{
    (void)text;
    (void)size;
    *out = (msp_json_doc){0};
    return msp_error_set(err, MSP_E_UNSUPPORTED, "YAML cannot be read yet");
}
