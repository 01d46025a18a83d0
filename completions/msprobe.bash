# bash completion for msprobe. Made by 'msprobe __generate bash'.
_msprobe()
{
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD - 1]}" command="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${COMP_WORDS[i]}" in
        compare|merge_result|parse|report|help)
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
    compare:--fail-on)
        mapfile -t COMPREPLY < <(compgen -W 'no warning any' -- "$cur")
        return ;;
    compare:--suffix)
        return ;;
    compare:--framework)
        mapfile -t COMPREPLY < <(compgen -W 'pytorch mindspore' -- "$cur")
        return ;;
    compare:--threads)
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
    help:*)
        mapfile -t COMPREPLY < <(compgen -W 'compare merge_result parse report help' -- "$cur")
        return ;;
    esac
    local words=""
    case "$command" in
    '') words="compare merge_result parse report help -f --framework -h --help --version -q --quiet -v --verbose --no-color --threads" ;;
    compare) words=" -i --input_path -o --output_path -s --stack_mode -c --compare_only -f --fuzzy_match -hl --highlight -dm --data_mapping -da --diff_analyze -cm --cell_mapping -am --api_mapping -lm --layer_mapping --format --no-html --fail-on --json --suffix --shape --framework -h --help --version -q --quiet -v --verbose --no-color --threads" ;;
    merge_result) words=" -i --input_dir -o --output_dir -config --config-path -f --framework -h --help --version -q --quiet -v --verbose --no-color --threads" ;;
    parse) words=" -f --framework -h --help --version -q --quiet -v --verbose --no-color --threads" ;;
    report) words=" -o --output_dir -f --framework -h --help --version -q --quiet -v --verbose --no-color --threads" ;;
    esac
    if [[ $cur != -* && $command == @(compare|parse|report) ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    fi
}
complete -F _msprobe msprobe
