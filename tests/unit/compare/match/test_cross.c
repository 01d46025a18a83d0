/* test_cross.c - MindSpore names against PyTorch's: functions, cells and layers. */
#include "unit.h"
#include <sys/stat.h>
#include "compare/match/api_table.h"
#include "compare/match/cross.h"
#include "core/alloc.h"
#include "core/file.h"

/* ---- two dumps from a list of calls -------------------------------------------------------------------------- */

typedef struct side {
    char path[300];
    msp_dump *dump;
    msp_rows rows;
} side;

static side npu, bench;
static msp_match match;
static char mapping[300];

/* calls: names separated by spaces; each has two inputs and one output of one shape, parameters_grad one weight. */
static void
write_dump(const char *dir, const char *framework, const char *calls)
{
    const char *dtype = strcmp(framework, "mindspore") == 0 ? "Float32" : "torch.float32";
    const char *type = strcmp(framework, "mindspore") == 0 ? "mindspore.Tensor" : "torch.Tensor";
    char path[300], leaf[256], copy[2048];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", scratch_dir(), dir);
    mkdir(path, 0750);
    snprintf(path, sizeof(path), "%s/%s/dump.json", scratch_dir(), dir);
    f = fopen(path, "w");
    snprintf(leaf, sizeof(leaf),
             "{\"type\":\"%s\",\"dtype\":\"%s\",\"shape\":[2],\"Max\":1,\"Min\":0,\"Mean\":0.5,\"Norm\":1}", type,
             dtype);
    fprintf(f, "{\"task\":\"statistics\",\"level\":\"mix\",\"framework\":\"%s\",\"dump_data_dir\":null,\"data\":{",
            framework);
    snprintf(copy, sizeof(copy), "%s", calls);
    for (char *name = strtok(copy, " "), *first = name; name != NULL; name = strtok(NULL, " ")) {
        fprintf(f, "%s\"%s\":", name == first ? "" : ",", name);
        if (strstr(name, "parameters_grad") != NULL)
            fprintf(f, "{\"weight\":[%s]}", leaf);
        else if (strstr(name, "backward") != NULL)
            fprintf(f, "{\"input\":[%s,%s],\"output\":[%s,%s]}", leaf, leaf, leaf, leaf);
        else
            fprintf(f, "{\"input_args\":[%s,%s,%s],\"input_kwargs\":{\"dim\":%s},\"output\":[%s]}", leaf, leaf, leaf,
                    leaf, leaf);
    }
    fputs("}}", f);
    fclose(f);
}

static void
write_beside(const char *dir, const char *name, const char *text)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    write_file(path, text, strlen(text));
}

static void
open_side(side *s, const char *dir)
{
    snprintf(s->path, sizeof(s->path), "%s/%s/dump.json", scratch_dir(), dir);
    assert_int_equal(msp_dump_open(&s->dump, s->path, NULL), MSP_OK);
    assert_int_equal(msp_rows_flatten(&s->rows, s->dump, NULL, NULL, NULL), MSP_OK);
}

static void
open_sides(const char *npu_calls, const char *bench_calls)
{
    write_dump("npu", "mindspore", npu_calls);
    write_dump("bench", "pytorch", bench_calls);
    open_side(&npu, "npu");
    open_side(&bench, "bench");
    snprintf(mapping, sizeof(mapping), "%s/data_mapping.yaml", scratch_dir());
}

static void
close_sides(void)
{
    msp_rows_release(&npu.rows);
    msp_rows_release(&bench.rows);
    msp_dump_close(npu.dump);
    msp_dump_close(bench.dump);
    msp_match_release(&match);
    match = (msp_match){0};
    npu = bench = (side){0};
}

static msp_status
try_run(const msp_compare_options *opt, msp_error *err)
{
    msp_cross_sides sides = {&npu.rows, &bench.rows, npu.path, bench.path, mapping};
    msp_match_rule rule = {.cross_framework = true};
    msp_cross *cross = NULL;
    msp_cross_pair *pair = NULL;
    msp_status st = msp_cross_open(&cross, opt, err);

    if (st == MSP_OK)
        st = msp_cross_pair_open(&pair, cross, &sides, err);
    if (st == MSP_OK) {
        msp_cross_pair_rule(pair, &rule);
        st = msp_match_rows(&match, &npu.rows, &bench.rows, &rule, err);
    }
    msp_cross_pair_close(pair);
    msp_cross_close(cross);
    return st;
}

static void
run(const msp_compare_options *opt)
{
    msp_error err;

    if (try_run(opt, &err) != MSP_OK)
        fail_msg("%s", err.message);
}

/* The bench's row beside an NPU row, "-" when there is none. */
static const char *
partner(const char *name)
{
    static char buf[256];

    for (size_t i = 0; i < npu.rows.count; i++) {
        msp_str n = msp_row_name(&npu.rows.rows[i]), b;

        if (!msp_str_eq(n, msp_str_of(name)))
            continue;
        if (match.bench[i] == MATCH_NONE)
            return "-";
        b = msp_row_name(&bench.rows.rows[match.bench[i]]);
        snprintf(buf, sizeof(buf), "%.*s", (int)b.len, b.p);
        return buf;
    }
    return "no such row";
}

static const char *
yaml(const char *text)
{
    return write_file("rules.yaml", text, strlen(text));
}

/* ---- functions ----------------------------------------------------------------------------------------------- */

static void
builtin_is(const char *ms, const char *pt)
{
    msp_buf scratch = {0};
    msp_str got = msp_cross_builtin(msp_str_of(ms), &scratch);

    if (!msp_str_eq(got, msp_str_of(pt)))
        fail_msg("%s: %.*s", ms, (int)got.len, got.p);
    msp_buf_release(&scratch);
}

static void
the_builtin_table_knows_prefixes_and_names(void **state)
{
    (void)state;
    builtin_is("Mint.add", "Torch.add");
    builtin_is("MintFunctional.relu", "Functional.relu");
    builtin_is("MintFunctional.dense", "Functional.linear");
    builtin_is("Mint.gelu", "Functional.gelu");
    builtin_is("Tensor.astype", "Tensor.to");
    builtin_is("Functional.normal", "Torch.normal");
    builtin_is("MintDistributed.all_reduce", "Distributed.all_reduce");
    builtin_is("Functional.abs", "Torch.abs");
    builtin_is("Functional.zeros_like", "Torch.zeros_like");
    builtin_is("Functional.gelu", "Functional.gelu");
    builtin_is("Functional.softmax", "Functional.softmax");
    builtin_is("Functional.dense", "Functional.linear");
    builtin_is("Functional.flash_attention_score", "NPU.npu_fusion_attention");
    builtin_is("Functional.sigmoid", "Functional.sigmoid"); /* torch has both; so does the original's table */
    builtin_is("Functional.equal", "Torch.eq");             /* element by element, unlike torch.equal */
    builtin_is("Tensor.equal", "Tensor.eq");
    builtin_is("Functional.swapaxes", "Torch.transpose");
    builtin_is("Functional.bidense", "Functional.bilinear");
    builtin_is("Functional.randn", "Torch.randn");
    builtin_is("Functional.floor_divide", "Torch.floor_divide");
    builtin_is("Tensor.reshape", "Tensor.reshape");
    builtin_is("Distributed.all_reduce", "Distributed.all_reduce");
    builtin_is("Functional.", "Functional.");
}

static void
the_builtin_tables_are_sorted_and_name_nothing_twice(void **state)
{
    (void)state;
    for (size_t i = 1; i < sizeof(torch_functions) / sizeof(torch_functions[0]); i++)
        assert_true(strcmp(torch_functions[i - 1], torch_functions[i]) < 0);
    for (size_t i = 0; i < sizeof(renamed_functions) / sizeof(renamed_functions[0]); i++) {
        assert_true(i == 0 || strcmp(renamed_functions[i - 1].name, renamed_functions[i].name) < 0);
        for (size_t k = 0; k < sizeof(torch_functions) / sizeof(torch_functions[0]); k++)
            assert_string_not_equal(renamed_functions[i].name, torch_functions[k]);
    }
    for (size_t i = 1; i < sizeof(renamed_others) / sizeof(renamed_others[0]); i++)
        assert_true(strcmp(renamed_others[i - 1].name, renamed_others[i].name) < 0);
}

static void
a_stem_is_a_functions_name_without_its_call(void **state)
{
    static const char *const none[] = {"Cell.fc1.Dense.forward.0", "forward", ".forward", "0.forward", "a.b.forward",
                                       "Cell.a.B.parameters_grad", ""};
    msp_str s = msp_cross_stem(MSP_STR("Torch.linalg.norm.12.backward"));

    (void)state;
    assert_true(msp_str_eq(s, MSP_STR("Torch.linalg.norm")));
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_int_equal(msp_cross_stem(msp_str_of(none[i])).len, 0);
}

static void
functions_meet_under_their_pytorch_names(void **state)
{
    msp_compare_options opt = {.api_mapping = ""};

    (void)state;
    open_sides("Functional.abs.0.forward Mint.add.1.forward Functional.gelu.0.forward Functional.own.0.forward",
               "Torch.abs.0.forward Torch.add.1.forward Functional.gelu.0.forward Torch.own.0.forward");
    run(&opt);
    assert_string_equal(partner("Functional.abs.0.forward.input.0"), "Torch.abs.0.forward.input.0");
    assert_string_equal(partner("Mint.add.1.forward.output.0"), "Torch.add.1.forward.output.0");
    assert_string_equal(partner("Functional.gelu.0.forward.input.dim"), "Functional.gelu.0.forward.input.dim");
    assert_string_equal(partner("Functional.own.0.forward.input.0"), "-");
    close_sides();
}

/* Both spellings of the output lists, a list of entries and an entry by itself. */
static void
functions_that_are_one_in_pytorch_have_one_partner(void **state)
{
    msp_compare_options opt = {.api_mapping = ""};

    (void)state;
    open_sides("Mint.add.0.forward Functional.add.0.forward", "Torch.add.0.forward");
    run(&opt);
    assert_string_equal(partner("Mint.add.0.forward.input.0"), "Torch.add.0.forward.input.0");
    assert_string_equal(partner("Functional.add.0.forward.input.0"), "Torch.add.0.forward.input.0");
    close_sides();
}

static void
a_yaml_pairs_arguments_by_position(void **state)
{
    static const char *const texts[] =
        {"- ms_api: Functional.own\n  pt_api: Torch.other\n  ms_args: [0, 2]\n  pt_args: [0, 1]\n  ms_outputs: [0]\n"
         "  pt_outputs: [0]\n",
         "ms_api: Functional.own\npt_api: Torch.other\nms_args: [0, 2]\npt_args: [0, 1]\nms_output: [0]\npt_output: "
         "[0]\n"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        msp_compare_options opt = {.api_mapping = yaml(texts[i])};

        open_sides("Functional.own.3.forward Functional.own.3.backward Functional.abs.0.forward",
                   "Torch.other.3.forward Torch.other.3.backward Torch.abs.0.forward");
        run(&opt);
        assert_string_equal(partner("Functional.own.3.forward.input.0"), "Torch.other.3.forward.input.0");
        assert_string_equal(partner("Functional.own.3.forward.input.1"), "-");
        assert_string_equal(partner("Functional.own.3.forward.input.2"), "Torch.other.3.forward.input.1");
        assert_string_equal(partner("Functional.own.3.forward.input.dim"), "Torch.other.3.forward.input.dim");
        assert_string_equal(partner("Functional.own.3.forward.output.0"), "Torch.other.3.forward.output.0");
        /* the gradient of output 0 comes in, the gradients of the arguments go out */
        assert_string_equal(partner("Functional.own.3.backward.input.0"), "Torch.other.3.backward.input.0");
        assert_string_equal(partner("Functional.own.3.backward.input.1"), "-");
        assert_string_equal(partner("Functional.own.3.backward.output.1"), "-");
        assert_string_equal(partner("Functional.abs.0.forward.input.0"), "Torch.abs.0.forward.input.0");
        close_sides();
    }
}

static void
a_rule_for_a_function_that_the_bench_lacks_changes_nothing(void **state)
{
    msp_compare_options opt = {.api_mapping =
                                   yaml("ms_api: Functional.abs\npt_api: Torch.absent\nms_args: [0]\npt_args: [0]\n")};

    (void)state;
    open_sides("Functional.abs.0.forward", "Torch.abs.0.forward");
    run(&opt);
    assert_string_equal(partner("Functional.abs.0.forward.input.1"), "Torch.abs.0.forward.input.1");
    close_sides();
}

static void
lists_of_different_length_leave_their_entry_out(void **state)
{
    msp_compare_options opt = {
        .api_mapping = yaml("- ms_api: Functional.abs\n  pt_api: Torch.other\n  ms_args: [0, 1]\n  pt_args: [0]\n")};

    (void)state;
    open_sides("Functional.abs.0.forward", "Torch.abs.0.forward Torch.other.0.forward");
    run(&opt);
    assert_string_equal(partner("Functional.abs.0.forward.input.1"), "Torch.abs.0.forward.input.1");
    close_sides();
}

/* ---- cells --------------------------------------------------------------------------------------------------- */

static void
cells_become_modules(void **state)
{
    msp_compare_options opt = {.cell_mapping = ""};

    (void)state;
    open_sides(
        "Cell.fc1.Dense.forward.0 Cell.relu.ReLU.backward.0 Cell.relu.ReLU.parameters_grad Functional.gelu.0.forward",
        "Module.fc1.Linear.forward.0 Module.relu.ReLU.backward.0 Module.relu.ReLU.parameters_grad "
        "Functional.gelu.0.forward");
    run(&opt);
    assert_string_equal(partner("Cell.fc1.Dense.forward.0.input.0"), "-");
    assert_string_equal(partner("Cell.relu.ReLU.backward.0.input.0"), "Module.relu.ReLU.backward.0.input.0");
    assert_string_equal(partner("Cell.relu.ReLU.parameters_grad.weight"), "Module.relu.ReLU.parameters_grad.weight");
    assert_string_equal(partner("Functional.gelu.0.forward.input.0"), "Functional.gelu.0.forward.input.0");
    opt.cell_mapping = yaml("fc1.Dense: fc1.Linear\nReLU: other\n");
    msp_match_release(&match);
    run(&opt);
    assert_string_equal(partner("Cell.fc1.Dense.forward.0.input.0"), "Module.fc1.Linear.forward.0.input.0");
    assert_string_equal(partner("Cell.relu.ReLU.backward.0.input.0"), "Module.relu.ReLU.backward.0.input.0");
    close_sides();
}

/* ---- layers -------------------------------------------------------------------------------------------------- */

static void
layers_meet_by_their_path_without_class(void **state)
{
    msp_compare_options opt = {.layer_mapping = ""};
    msp_mapping map;

    (void)state;
    open_sides("Functional.add.0.forward Cell.net.fc1.Dense.forward.0 Cell.net.fc1.Dense.backward.0 "
               "Cell.net.fc1.Dense.parameters_grad Mint.mul.0.forward",
               "Torch.add.0.forward Module.net.fc1.Linear.forward.0 Module.net.fc1.Linear.backward.0 "
               "Module.net.fc1.Linear.parameters_grad Torch.mul.0.forward");
    write_beside("npu", "construct.json",
                 "{\"Functional.add.0.forward\":\"Cell.net.fc1.Dense.forward.0\",\"Cell.net.fc1.Dense.forward.0\":null,"
                 "\"Mint.mul.0.forward\":[\"Cell.net.fc1.Dense.forward.0\",1]}");
    write_beside("bench", "construct.json",
                 "{\"Torch.add.0.forward\":\"Module.net.fc1.Linear.forward.0\",\"Torch.mul.0.forward\":null}");
    run(&opt);
    assert_string_equal(partner("Functional.add.0.forward.input.1"), "Torch.add.0.forward.input.1");
    assert_string_equal(partner("Cell.net.fc1.Dense.forward.0.output.0"), "Module.net.fc1.Linear.forward.0.output.0");
    assert_string_equal(partner("Cell.net.fc1.Dense.backward.0.input.0"), "Module.net.fc1.Linear.backward.0.input.0");
    assert_string_equal(partner("Cell.net.fc1.Dense.parameters_grad.weight"),
                        "Module.net.fc1.Linear.parameters_grad.weight");
    assert_string_equal(partner("Mint.mul.0.forward.input.0"), "-"); /* inside the layer here, outside of it there */
    assert_int_equal(msp_map_open(&map, mapping, NULL), MSP_OK);
    assert_non_null(memmem(map.addr, map.size, "\nMint.mul.0.forward.input.0: N/A\n", 33));
    assert_memory_equal(map.addr, "Functional.add.0.forward.input.0: Torch.add.0.forward.input.0\n", 62);
    msp_map_close(&map);
    close_sides();
}

static void
the_kth_call_at_a_place_meets_the_kth(void **state)
{
    msp_compare_options opt = {.layer_mapping = ""};

    (void)state;
    open_sides("Functional.add.4.forward Functional.add.5.forward Mint.add.0.forward",
               "Torch.add.0.forward Tensor.add.0.forward");
    write_beside("npu", "construct.json", "{\"x\":null}");
    write_beside("bench", "construct.json", "{\"x\":null}");
    run(&opt);
    assert_string_equal(partner("Functional.add.4.forward.input.0"), "Torch.add.0.forward.input.0");
    assert_string_equal(partner("Functional.add.5.forward.input.0"), "Tensor.add.0.forward.input.0");
    assert_string_equal(partner("Mint.add.0.forward.input.0"), "-");
    close_sides();
}

/* Rules by the class above, the longest first; a note in brackets is no part of the name; the top is Cell or TopLayer.
 */
static void
a_yaml_names_layers_that_differ(void **state)
{
    msp_compare_options opt = {.layer_mapping =
                                   yaml("Cell:\n  network: module\nNet:\n  attention: self_attention (Attn)\n"
                                        "  attention.core: direct\n  attention.core.x: never\n")};

    (void)state;
    open_sides(
        "Cell.network.Net.forward.0 Cell.network.attention.Attn.forward.0 Cell.network.attention.core.Core.forward.0 "
        "Cell.network.attention.corex.Core.forward.0",
        "Module.module.Model.forward.0 Module.module.self_attention.A.forward.0 Module.module.direct.C.forward.0 "
        "Module.module.self_attention.corex.C.forward.0");
    write_beside("npu", "construct.json", "{\"x\":null}");
    write_beside("bench", "construct.json", "{\"x\":null}");
    run(&opt);
    assert_string_equal(partner("Cell.network.Net.forward.0.input.0"), "Module.module.Model.forward.0.input.0");
    assert_string_equal(partner("Cell.network.attention.Attn.forward.0.input.0"),
                        "Module.module.self_attention.A.forward.0.input.0");
    assert_string_equal(partner("Cell.network.attention.core.Core.forward.0.input.0"),
                        "Module.module.direct.C.forward.0.input.0");
    assert_string_equal(partner("Cell.network.attention.corex.Core.forward.0.input.0"),
                        "Module.module.self_attention.corex.C.forward.0.input.0");
    close_sides();
}

static void
stages_of_a_pipeline_count_their_layers_from_zero(void **state)
{
    msp_compare_options opt = {.layer_mapping = ""};

    (void)state;
    open_sides(
        "Cell.net.ParallelTransformer.forward.0 Cell.net.layers.12.Layer.forward.0 Cell.net.layers.13.Layer.forward.0",
        "Module.net.ParallelTransformer.forward.0 Module.net.layers.0.Layer.forward.0 "
        "Module.net.layers.1.Layer.forward.0");
    write_beside("npu", "construct.json", "{\"x\":null}");
    write_beside("bench", "construct.json", "{\"x\":null}");
    run(&opt);
    assert_string_equal(partner("Cell.net.layers.12.Layer.forward.0.input.0"),
                        "Module.net.layers.0.Layer.forward.0.input.0");
    assert_string_equal(partner("Cell.net.layers.13.Layer.forward.0.input.0"),
                        "Module.net.layers.1.Layer.forward.0.input.0");
    close_sides();
}

/* add through linear is another call than add by itself. */
static void
the_frameworks_own_function_is_part_of_the_place(void **state)
{
    msp_compare_options opt = {.layer_mapping = ""};

    (void)state;
    open_sides("Functional.add.0.forward Functional.add.1.forward Functional.add.1.backward",
               "Torch.add.0.forward Torch.add.1.forward Torch.add.1.backward");
    write_beside("npu", "construct.json", "{\"x\":null}");
    write_beside("bench", "construct.json", "{\"x\":null}");
    write_beside("npu", "stack.json",
                 "{\"Functional.add.0.forward\":[\"File /w/a.py, line 1, in f, \\n y\"],"
                 "\"Functional.add.1.forward\":[\"File /x/site-packages/mindspore/nn/f.py, line 1, in linear, \\n y\","
                 "\"File /w/a.py, line 1, in f, \\n y\"]}");
    write_beside("bench", "stack.json",
                 "{\"Torch.add.0.forward\":[\"File /w/t.py, line 1, in hook, \\n Template(x)\","
                 "\"File /x/site-packages/torch/nn/functional.py, line 9, in inner, \\n y\","
                 "\"File /x/site-packages/torch/nn/functional.py, line 9, in linear, \\n y\","
                 "\"File /x/site-packages/torch/nn/modules/linear.py, line 9, in forward, \\n y\"],"
                 "\"Torch.add.1.forward\":[\"File /w/a.py, line 1, in f, \\n y\"]}");
    run(&opt);
    assert_string_equal(partner("Functional.add.0.forward.input.0"), "Torch.add.1.forward.input.0");
    assert_string_equal(partner("Functional.add.1.forward.input.0"), "Torch.add.0.forward.input.0");
    assert_string_equal(partner("Functional.add.1.backward.input.0"),
                        "-"); /* its forward is linear.add, theirs is add */
    close_sides();
    unlink(scratch_path("npu/stack.json"));
    unlink(scratch_path("bench/stack.json"));
}

/* As a collector without wrappers writes it: the way leads through torch's own calling of modules. */
static void
stacks_in_numbered_groups_are_not_asked(void **state)
{
    msp_compare_options opt = {.layer_mapping = ""};

    (void)state;
    open_sides("MintFunctional.linear.0.forward Cell.fc.Linear.forward.0",
               "Functional.linear.0.forward Module.fc.Linear.forward.0");
    write_beside("npu", "construct.json", "{\"MintFunctional.linear.0.forward\":\"Cell.fc.Linear.forward.0\"}");
    write_beside("bench", "construct.json", "{\"Functional.linear.0.forward\":\"Module.fc.Linear.forward.0\"}");
    write_beside("bench", "stack.json",
                 "{\"0\":[[\"Functional.linear.0.forward\"],"
                 "[\"File /x/site-packages/torch/nn/modules/linear.py, line 134, in forward, \\n y\","
                 "\"File /x/site-packages/torch/nn/modules/module.py, line 1778, in _wrapped_call_impl, \\n y\","
                 "\"File /w/a.py, line 1, in forward, \\n y\"]]}");
    run(&opt);
    assert_string_equal(partner("MintFunctional.linear.0.forward.input.0"), "Functional.linear.0.forward.input.0");
    close_sides();
    unlink(scratch_path("bench/stack.json"));
}

/* ---- wrong input --------------------------------------------------------------------------------------------- */

static void
refused(const msp_compare_options *opt, msp_status status, const char *part)
{
    msp_error err;

    assert_int_equal(try_run(opt, &err), status);
    if (strstr(err.message, part) == NULL)
        fail_msg("'%s' lacks '%s'", err.message, part);
}

static void
wrong_rules_are_refused_with_their_file_and_place(void **state)
{
    msp_compare_options opt = {0};

    (void)state;
    open_sides("Functional.abs.0.forward", "Torch.abs.0.forward");
    write_beside("npu", "construct.json", "{}");
    write_beside("bench", "construct.json", "{\"x\":null}");
    opt.api_mapping = "/nonexistent/rules.yaml";
    refused(&opt, MSP_E_NOT_FOUND, "/nonexistent/rules.yaml");
    opt.api_mapping = yaml("a: [");
    refused(&opt, MSP_E_FORMAT, "rules.yaml: ");
    opt.api_mapping = yaml("- ms_api: Functional.abs\n");
    refused(&opt, MSP_E_INVALID, "needs ms_api and pt_api");
    opt.api_mapping = yaml("- ms_api: a.b\n  pt_api: c.d\n  ms_args: 7\n");
    refused(&opt, MSP_E_INVALID, "the entry of a.b: ms_args must be a list");
    opt.api_mapping = yaml("text");
    refused(&opt, MSP_E_INVALID, "must hold a list");
    opt.api_mapping = NULL;
    opt.cell_mapping = yaml("a: [1]\n");
    refused(&opt, MSP_E_INVALID, "the value of a must be");
    opt.cell_mapping = NULL;
    opt.layer_mapping = yaml("A: b\n");
    refused(&opt, MSP_E_INVALID, "below A there must be lines");
    opt.layer_mapping = "";
    refused(&opt, MSP_E_INVALID, "holds no layers: layer mapping needs dumps of level L0 or mix");
    unlink(scratch_path("npu/construct.json"));
    refused(&opt, MSP_E_NOT_FOUND, "construct.json");
    close_sides();
}

static void
every_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    msp_compare_options opts[] =
        {{.api_mapping = yaml("- ms_api: Functional.abs\n  pt_api: Torch.abs\n  ms_args: [0]\n  pt_args: [1]\n")},
         {.cell_mapping = ""},
         {.layer_mapping = ""}};

    (void)state;
    open_sides("Functional.abs.0.forward Cell.net.ParallelTransformer.forward.0 Cell.net.layers.12.L.forward.0 "
               "Cell.net.layers.12.L.backward.0",
               "Torch.abs.0.forward Module.net.ParallelTransformer.forward.0 Module.net.layers.0.L.forward.0");
    write_beside("npu", "construct.json", "{\"Functional.abs.0.forward\":\"Cell.net.layers.12.L.forward.0\"}");
    write_beside("bench", "construct.json", "{\"Torch.abs.0.forward\":\"Module.net.layers.0.L.forward.0\"}");
    for (size_t i = 0; i < 3; i++) {
        int64_t live = msp_alloc_live(), n;
        msp_status st = MSP_E_NOMEM;

        for (n = 0; n < 1000 && st == MSP_E_NOMEM; n++) {
            msp_alloc_fail_after(n);
            st = try_run(&opts[i], NULL);
            msp_alloc_fail_after(-1);
            msp_match_release(&match);
            match = (msp_match){0};
            assert_int_equal(msp_alloc_live(), live);
        }
        assert_int_equal(st, MSP_OK);
        assert_true(n > 3);
    }
    close_sides();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_builtin_table_knows_prefixes_and_names),
        TEST(the_builtin_tables_are_sorted_and_name_nothing_twice),
        TEST(a_stem_is_a_functions_name_without_its_call),
        TEST(functions_meet_under_their_pytorch_names),
        TEST(functions_that_are_one_in_pytorch_have_one_partner),
        TEST(a_yaml_pairs_arguments_by_position),
        TEST(a_rule_for_a_function_that_the_bench_lacks_changes_nothing),
        TEST(lists_of_different_length_leave_their_entry_out),
        TEST(cells_become_modules),
        TEST(layers_meet_by_their_path_without_class),
        TEST(the_kth_call_at_a_place_meets_the_kth),
        TEST(a_yaml_names_layers_that_differ),
        TEST(stages_of_a_pipeline_count_their_layers_from_zero),
        TEST(the_frameworks_own_function_is_part_of_the_place),
        TEST(stacks_in_numbered_groups_are_not_asked),
        TEST(wrong_rules_are_refused_with_their_file_and_place),
        TEST(every_failed_allocation_is_reported_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
