# Completion of sheaf(1) for bash 4.4 and later. Printed by `sheaf completion bash`.
# The command answers with lines KIND,VALUE: a word (plain), one that goes on (open), or what the shell itself completes.
_sheaf_completion() {
    local word=${COMP_WORDS[COMP_CWORD]} kind value reply
    [[ $word == [=:] ]] && word=
    reply=$(COMP_WORDS=${COMP_LINE:0:COMP_POINT} COMP_BREAKS=$COMP_WORDBREAKS _SHEAF_COMPLETE=bash_complete "$1" 2>/dev/null)
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
        plain) COMPREPLY+=("$value") ;;
        open)
            COMPREPLY+=("$value")
            compopt -o nospace
            ;;
        file | dir | program)
            compopt -o filenames
            local action=-f
            [ "$kind" = file ] || action=${kind:0:1} action=-${action/p/c}
            while IFS= read -r value; do
                COMPREPLY+=("$value")
            done < <(compgen "$action" -- "$word"; [ "$kind" != program ] || compgen -f -- "$word")
            ;;
        esac
    done <<<"$reply"
}

complete -o nosort -F _sheaf_completion sheaf
