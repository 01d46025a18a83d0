/* test_cli_options.c - argv into values: argparse's rules and ours, in any order, and what is said when they are
 * broken. */
#include "unit.h"
#include "cli.h"

enum { MAX_WORDS = 32 };

static msp_args args;
static msp_line line;
static msp_error err;
static const char *operands[MAX_WORDS];

/* Split at single spaces and parse, as the command does. */
static msp_status
parse(const char *text)
{
    static char copy[512];
    static char *argv[MAX_WORDS], *words[MAX_WORDS];
    int argc = 0;

    snprintf(copy, sizeof(copy), "msprobe %s", text);
    for (char *p = strtok(copy, " "); p != NULL; p = strtok(NULL, " "))
        argv[argc++] = p;
    err.message[0] = '\0';
    msp_line_split(&line, argc, argv, words);
    return msp_args_parse(&args, &line, operands, &err);
}

static void
assert_parsed(const char *text)
{
    if (parse(text) != MSP_OK)
        fail_msg("'%s': %s", text, err.message);
}

static void
assert_refused(const char *text, const char *message)
{
    assert_int_equal(parse(text), MSP_E_INVALID);
    assert_string_equal(err.message, message);
}

static const char *
value(msp_opt_id id)
{
    const char *v = args.value[id];

    return v == NULL ? "(none)" : v == msp_opt_bare ? "(bare)" : v;
}

static void
the_manuals_line_is_understood(void **state)
{
    (void)state;
    assert_parsed("-f pytorch compare -i ./compare.json -o ./output -s -c -f -hl -dm m.yaml -da");
    assert_string_equal(line.command->name, "compare");
    assert_string_equal(value(MSP_OPT_FRAMEWORK), "pytorch");
    assert_string_equal(value(MSP_OPT_INPUT), "./compare.json");
    assert_string_equal(value(MSP_OPT_OUTPUT), "./output");
    assert_string_equal(value(MSP_OPT_STACK), "(bare)");
    assert_string_equal(value(MSP_OPT_COMPARE_ONLY), "(bare)");
    assert_string_equal(value(MSP_OPT_FUZZY), "(bare)");
    assert_string_equal(value(MSP_OPT_HIGHLIGHT), "(bare)");
    assert_string_equal(value(MSP_OPT_DATA_MAPPING), "m.yaml");
    assert_string_equal(value(MSP_OPT_DIFF_ANALYZE), "(bare)");
    assert_int_equal(args.noperands, 0);
}

static void
long_names_do_the_same(void **state)
{
    (void)state;
    assert_parsed("--framework=mindspore compare --input_path c.json --output_path=o --stack_mode --compare_only "
                  "--fuzzy_match --highlight --data_mapping m.yaml --diff_analyze --cell_mapping --api_mapping a.yaml "
                  "--layer_mapping=l.yaml");
    assert_string_equal(value(MSP_OPT_FRAMEWORK), "mindspore");
    assert_string_equal(value(MSP_OPT_OUTPUT), "o");
    assert_string_equal(value(MSP_OPT_CELL_MAPPING), "(bare)");
    assert_string_equal(value(MSP_OPT_API_MAPPING), "a.yaml");
    assert_string_equal(value(MSP_OPT_LAYER_MAPPING), "l.yaml");
}

static void
dashes_and_underscores_are_the_same(void **state)
{
    (void)state;
    assert_parsed("compare --input-path c.json --fail_on any --no_color");
    assert_string_equal(value(MSP_OPT_INPUT), "c.json");
    assert_string_equal(value(MSP_OPT_FAIL_ON), "any");
    assert_parsed("merge_result -i a -o b --config_path c.yaml");
    assert_string_equal(value(MSP_OPT_CONFIG), "c.yaml");
    assert_parsed("merge_result -i a -o b -config c.yaml");
    assert_string_equal(value(MSP_OPT_CONFIG), "c.yaml");
}

static void
options_stand_before_or_after_the_command(void **state)
{
    (void)state;
    assert_parsed("-i c.json -hl -f pytorch -o out compare");
    assert_string_equal(line.command->name, "compare");
    assert_string_equal(value(MSP_OPT_INPUT), "c.json");
    assert_string_equal(value(MSP_OPT_OUTPUT), "out");
    assert_string_equal(value(MSP_OPT_FRAMEWORK), "pytorch");
    assert_string_equal(value(MSP_OPT_FUZZY), "(none)");
    assert_parsed("-o compare npu bench");
    assert_string_equal(value(MSP_OPT_OUTPUT), "(bare)");
    assert_int_equal(args.noperands, 2);
}

static void
f_means_the_framework_where_a_frameworks_name_follows(void **state)
{
    static const char *const lines[] = {"compare -f pytorch a b", "compare a b -f pytorch", "compare -f=pytorch a b",
                                        "compare -fpytorch a b", "compare a -f pytorch b"};

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_parsed(lines[i]);
        assert_string_equal(value(MSP_OPT_FRAMEWORK), "pytorch");
        assert_string_equal(value(MSP_OPT_FUZZY), "(none)");
        assert_int_equal(args.noperands, 2);
    }
    assert_parsed("compare -f a b");
    assert_string_equal(value(MSP_OPT_FUZZY), "(bare)");
    assert_string_equal(operands[0], "a");
    assert_parsed("-f mindspore compare -f a b -f pytorch");
    assert_string_equal(value(MSP_OPT_FUZZY), "(bare)");
    assert_string_equal(value(MSP_OPT_FRAMEWORK), "pytorch"); /* the last one wins, as in argparse */
    assert_parsed("merge_result -f pytorch -i a -o b -config c");
    assert_string_equal(value(MSP_OPT_FRAMEWORK), "pytorch");
}

static void
an_option_whose_value_may_be_left_out_takes_what_is_no_option(void **state)
{
    (void)state;
    assert_parsed("compare -i c.json -o");
    assert_string_equal(value(MSP_OPT_OUTPUT), "(bare)");
    assert_parsed("compare -o -i c.json");
    assert_string_equal(value(MSP_OPT_OUTPUT), "(bare)");
    assert_string_equal(value(MSP_OPT_INPUT), "c.json");
    assert_string_equal(msp_args_get(&args, MSP_OPT_OUTPUT, "./output"), "./output");
    assert_parsed("compare -o -- a b");
    assert_string_equal(value(MSP_OPT_OUTPUT), "(bare)");
    assert_int_equal(args.noperands, 2);
}

static void
abbreviations_work_while_they_are_unambiguous(void **state)
{
    (void)state;
    assert_parsed("compare --inp c.json --out o --high --stack --comp --diff --data m");
    assert_string_equal(value(MSP_OPT_INPUT), "c.json");
    assert_string_equal(value(MSP_OPT_OUTPUT), "o");
    assert_string_equal(value(MSP_OPT_HIGHLIGHT), "(bare)");
    assert_string_equal(value(MSP_OPT_DIFF_ANALYZE), "(bare)");
    /* --framework, --format and --fail-on are new: what the originals accepted stays */
    assert_parsed("compare --f a b");
    assert_string_equal(value(MSP_OPT_FUZZY), "(bare)");
    assert_refused("compare --c a b", "option '--c' is ambiguous: it could be --compare_only, --cell_mapping");
    assert_refused("compare --d a b", "option '--d' is ambiguous: it could be --data_mapping, --diff_analyze");
    assert_parsed("merge_result -i a -o b -conf c.yaml");
    assert_string_equal(value(MSP_OPT_CONFIG), "c.yaml");
}

static void
letters_can_be_joined(void **state)
{
    (void)state;
    assert_parsed("compare -sc a b");
    assert_string_equal(value(MSP_OPT_STACK), "(bare)");
    assert_string_equal(value(MSP_OPT_COMPARE_ONLY), "(bare)");
    assert_parsed("compare a b -i=c");
    assert_string_equal(value(MSP_OPT_INPUT), "c");
    assert_parsed("compare -sqoout a b");
    assert_string_equal(value(MSP_OPT_OUTPUT), "out");
}

static void
after_two_dashes_everything_is_an_operand(void **state)
{
    (void)state;
    assert_parsed("compare -- -npu -bench");
    assert_int_equal(args.noperands, 2);
    assert_string_equal(operands[0], "-npu");
}

static void
unknown_options_name_the_nearest_one(void **state)
{
    (void)state;
    assert_refused("compare --highligt a b", "unknown option '--highligt'; did you mean '--highlight'?");
    assert_refused("compare -output x a b", "unknown option '-output'; did you mean '--output_path'?");
    assert_refused("compare --outptu x", "unknown option '--outptu'; did you mean '--output_path'?");
    assert_refused("compare -input_path x", "unknown option '-input_path'; did you mean '--input_path'?");
    assert_refused("compare --stack-mod=1", "option '--stack_mode' takes no value, but has '1'");
    assert_refused("compare --zzzzzz", "unknown option '--zzzzzz'");
    assert_refused("compare -x", "unknown option '-x'");
}

static void
wrong_values_name_the_right_ones(void **state)
{
    (void)state;
    assert_refused("-f tensorflow compare a b", "'tensorflow' is no value of --framework; choose pytorch,mindspore");
    assert_refused("compare --format csv,ods a b",
                   "'ods' is no value of --format; choose one or more of xlsx,csv,json");
    assert_refused("compare --format csv, a b", "the value of --format ends with a comma");
    assert_refused("compare --format= a b", "option '--format' has an empty value");
    assert_refused("compare --fail-on no,any a b", "'no,any' is no value of --fail-on; choose no,warning,any");
    assert_refused("compare -i", "option '--input_path' needs a value: -i compare.json");
    assert_refused("compare -i -o out", "option '--input_path' needs a value: -i compare.json");
    assert_refused("-f compare a b", "option '--framework' needs a value: -f pytorch,mindspore");
    assert_refused("compare -dm", "option '--data_mapping' needs a value: -dm YAML");
}

static void
numbers_are_checked(void **state)
{
    static const char *const wrong[] = {"0", "-1", "1025", "four", "4x", "1e3", "99999999999999999999"};
    char text[64];
    int n;

    (void)state;
    assert_parsed("compare --threads 8 a b");
    assert_int_equal(msp_args_number(&n, &args, MSP_OPT_THREADS, "--threads", 1024, &err), MSP_OK);
    assert_int_equal(n, 8);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(text, sizeof(text), "compare --threads=%s a b", wrong[i]);
        assert_parsed(text);
        assert_int_equal(msp_args_number(&n, &args, MSP_OPT_THREADS, "--threads", 1024, &err), MSP_E_INVALID);
    }
}

static void
the_command_may_be_missing_or_unknown(void **state)
{
    (void)state;
    assert_parsed("");
    assert_null(line.command_word);
    assert_parsed("-f pytorch");
    assert_null(line.command_word);
    parse("-f pytorch comapre a b");
    assert_null(line.command);
    assert_string_equal(line.command_word, "comapre");
}

static void
distances_count_slips_of_the_fingers(void **state)
{
    (void)state;
    assert_int_equal(msp_word_distance("compare", "compare", 3), 0);
    assert_int_equal(msp_word_distance("comapre", "compare", 3), 1);
    assert_int_equal(msp_word_distance("compre", "compare", 3), 1);
    assert_int_equal(msp_word_distance("kompare", "compare", 3), 1);
    assert_int_equal(msp_word_distance("", "abc", 3), 3);
    assert_int_equal(msp_word_distance("", "abcd", 3), 4);
    assert_int_equal(msp_word_distance("a", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", 3), 4);
}

/* Every word that could stand on a line, in every order of three: an answer or an error, never anything else. */
static void
no_combination_of_words_upsets_the_parser(void **state)
{
    static const char *const words[] = {"",        "-",   "--",   "---",     "-f",    "--f",  "=",      "-=",
                                        "--=",     "-f=", "-hl",  "-config", "-o",    "-i",   "--i=",   "pytorch",
                                        "compare", "a b", "\xff", "-\xff",   "-oout", "-scf", "--json", "--json=1"};
    size_t n = sizeof(words) / sizeof(words[0]);
    char *argv[5] = {(char *)"msprobe", NULL, NULL, NULL, NULL}, *split[8];

    (void)state;
    for (size_t a = 0; a < n; a++) {
        for (size_t b = 0; b < n; b++) {
            for (size_t c = 0; c < n; c++) {
                argv[1] = (char *)words[a];
                argv[2] = (char *)words[b];
                argv[3] = (char *)words[c];
                msp_line_split(&line, 4, argv, split);
                err.message[0] = '\0';
                if (msp_args_parse(&args, &line, operands, &err) != MSP_OK)
                    assert_true(err.message[0] != '\0');
                assert_true(args.noperands <= 3);
            }
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_manuals_line_is_understood),
        TEST(long_names_do_the_same),
        TEST(dashes_and_underscores_are_the_same),
        TEST(options_stand_before_or_after_the_command),
        TEST(f_means_the_framework_where_a_frameworks_name_follows),
        TEST(an_option_whose_value_may_be_left_out_takes_what_is_no_option),
        TEST(abbreviations_work_while_they_are_unambiguous),
        TEST(letters_can_be_joined),
        TEST(after_two_dashes_everything_is_an_operand),
        TEST(unknown_options_name_the_nearest_one),
        TEST(wrong_values_name_the_right_ones),
        TEST(numbers_are_checked),
        TEST(the_command_may_be_missing_or_unknown),
        TEST(distances_count_slips_of_the_fingers),
        TEST(no_combination_of_words_upsets_the_parser),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
