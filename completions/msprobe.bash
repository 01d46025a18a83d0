# bash completion for msprobe. Made by 'msprobe __generate bash'.
_msprobe()
{
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD - 1]}" command="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${COMP_WORDS[i]}" in
        compare|show|diff|merge_result|audit|parse|report|explain|repro|run_ut|multi_run_ut|acc_check|multi_acc_check|api_precision_compare|run_overflow_check|help)
            command="${COMP_WORDS[i]}"
            break ;;
        esac
    done
    case "$command:$prev" in
    :--framework|:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    :--threads)
        return ;;
    compare:--input_path|compare:-i)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    compare:--output_path|compare:-o)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return ;;
    compare:--data_mapping|compare:-dm)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    compare:--layout)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    compare:--cell_mapping|compare:-cm)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    compare:--api_mapping|compare:-am)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    compare:--layer_mapping|compare:-lm)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    compare:--format)
        mapfile -t COMPREPLY < <(compgen -W 'xlsx csv json' -- "$cur")
        return ;;
    compare:--replay-only)
        return ;;
    compare:--fail-on)
        mapfile -t COMPREPLY < <(compgen -W 'no warning any' -- "$cur")
        return ;;
    compare:--suffix)
        return ;;
    compare:--target_path|compare:-tp)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    compare:--golden_path|compare:-gp)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    compare:--mode|compare:-m)
        mapfile -t COMPREPLY < <(compgen -W 'auto' -- "$cur")
        return ;;
    compare:--rank)
        return ;;
    compare:--step)
        return ;;
    compare:--framework)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    compare:--threads)
        return ;;
    show:--framework|show:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    show:--threads)
        return ;;
    diff:--fail-on)
        mapfile -t COMPREPLY < <(compgen -W 'no any' -- "$cur")
        return ;;
    diff:--framework|diff:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    diff:--threads)
        return ;;
    merge_result:--input_dir|merge_result:-i)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return ;;
    merge_result:--output_dir|merge_result:-o)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return ;;
    merge_result:--config-path|merge_result:-config)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    merge_result:--framework|merge_result:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    merge_result:--threads)
        return ;;
    audit:--framework|audit:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    audit:--threads)
        return ;;
    parse:--framework|parse:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    parse:--threads)
        return ;;
    report:--output_dir|report:-o)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return ;;
    report:--framework|report:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    report:--threads)
        return ;;
    explain:--framework|explain:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    explain:--threads)
        return ;;
    repro:--output_dir|repro:-o)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return ;;
    repro:--framework|repro:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    repro:--threads)
        return ;;
    run_ut:--api_info_file|run_ut:-api_info)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    run_ut:--device|run_ut:-d)
        return ;;
    run_ut:--out_path|run_ut:-o)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return ;;
    run_ut:--result_csv_path|run_ut:-csv_path)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    run_ut:--config_path|run_ut:-config)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    run_ut:--fail-on)
        mapfile -t COMPREPLY < <(compgen -W 'error warning' -- "$cur")
        return ;;
    run_ut:--framework|run_ut:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    run_ut:--threads)
        return ;;
    multi_run_ut:--api_info_file|multi_run_ut:-api_info)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    multi_run_ut:--device|multi_run_ut:-d)
        return ;;
    multi_run_ut:--out_path|multi_run_ut:-o)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return ;;
    multi_run_ut:--result_csv_path|multi_run_ut:-csv_path)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    multi_run_ut:--config_path|multi_run_ut:-config)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    multi_run_ut:--fail-on)
        mapfile -t COMPREPLY < <(compgen -W 'error warning' -- "$cur")
        return ;;
    multi_run_ut:--num_splits|multi_run_ut:-n)
        return ;;
    multi_run_ut:--framework|multi_run_ut:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    multi_run_ut:--threads)
        return ;;
    acc_check:--api_info_file|acc_check:-api_info)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    acc_check:--device|acc_check:-d)
        return ;;
    acc_check:--out_path|acc_check:-o)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return ;;
    acc_check:--result_csv_path|acc_check:-csv_path)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    acc_check:--config_path|acc_check:-config)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    acc_check:--fail-on)
        mapfile -t COMPREPLY < <(compgen -W 'error warning' -- "$cur")
        return ;;
    acc_check:--framework|acc_check:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    acc_check:--threads)
        return ;;
    multi_acc_check:--api_info_file|multi_acc_check:-api_info)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    multi_acc_check:--device|multi_acc_check:-d)
        return ;;
    multi_acc_check:--out_path|multi_acc_check:-o)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return ;;
    multi_acc_check:--result_csv_path|multi_acc_check:-csv_path)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    multi_acc_check:--config_path|multi_acc_check:-config)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    multi_acc_check:--fail-on)
        mapfile -t COMPREPLY < <(compgen -W 'error warning' -- "$cur")
        return ;;
    multi_acc_check:--num_splits|multi_acc_check:-n)
        return ;;
    multi_acc_check:--framework|multi_acc_check:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    multi_acc_check:--threads)
        return ;;
    api_precision_compare:--npu_csv_path|api_precision_compare:-npu)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    api_precision_compare:--gpu_csv_path|api_precision_compare:-gpu)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    api_precision_compare:--out_path|api_precision_compare:-o)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return ;;
    api_precision_compare:--fail-on)
        mapfile -t COMPREPLY < <(compgen -W 'error' -- "$cur")
        return ;;
    api_precision_compare:--framework|api_precision_compare:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    api_precision_compare:--threads)
        return ;;
    run_overflow_check:--api_info_file|run_overflow_check:-api_info)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    run_overflow_check:--device|run_overflow_check:-d)
        return ;;
    run_overflow_check:--framework|run_overflow_check:-f)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    run_overflow_check:--threads)
        return ;;
    help:*)
        mapfile -t COMPREPLY < <(compgen -W 'compare show diff merge_result audit parse report explain repro run_ut multi_run_ut acc_check multi_acc_check api_precision_compare run_overflow_check help' -- "$cur")
        return ;;
    esac
    local words=""
    case "$command" in
    '') words="compare show diff merge_result audit parse report explain repro run_ut multi_run_ut acc_check multi_acc_check api_precision_compare run_overflow_check help -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    compare) words=" -i --input_path -o --output_path -s --stack_mode -c --compare_only -f --fuzzy_match -fm -hl --highlight -dm --data_mapping --layout -da --diff_analyze -cm --cell_mapping -am --api_mapping -lm --layer_mapping --format --no-html --no-replay --replay-only --fail-on --json --suffix --shape -tp --target_path -gp --golden_path --xlsx -tensor_log --is_print_compare_log -m --mode --rank --step --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    show) words=" --all --json -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    diff) words=" --all --fail-on --json -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    merge_result) words=" -i --input_dir -o --output_dir -config --config-path -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    audit) words=" --json -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    parse) words=" -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    report) words=" -o --output_dir --json -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    explain) words=" -f --fuzzy_match --no-replay --json -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    repro) words=" -o --output_dir --json -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    run_ut) words=" -api_info --api_info_file -d --device -j --jit_compile -o --out_path -save_error_data --save_error_data -csv_path --result_csv_path -f --filter_api -config --config_path --fail-on --json -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    multi_run_ut) words=" -api_info --api_info_file -d --device -j --jit_compile -o --out_path -save_error_data --save_error_data -csv_path --result_csv_path -f --filter_api -config --config_path --fail-on --json -n --num_splits -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    acc_check) words=" -api_info --api_info_file -d --device -j --jit_compile -o --out_path -save_error_data --save_error_data -csv_path --result_csv_path -f --filter_api -config --config_path --fail-on --json -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    multi_acc_check) words=" -api_info --api_info_file -d --device -j --jit_compile -o --out_path -save_error_data --save_error_data -csv_path --result_csv_path -f --filter_api -config --config_path --fail-on --json -n --num_splits -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    api_precision_compare) words=" -npu --npu_csv_path -gpu --gpu_csv_path -o --out_path --fail-on --json -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    run_overflow_check) words=" -api_info --api_info_file -d --device -j --jit_compile -f --framework -h --help -V --version -q --quiet -v --verbose --no-color --threads" ;;
    esac
    if [[ $cur != -* && $command == @(compare|show|diff|audit|parse|report|explain|repro|run_ut|multi_run_ut|acc_check|multi_acc_check|run_overflow_check) ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    fi
}
complete -F _msprobe msprobe
