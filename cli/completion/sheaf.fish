# Completion of sheaf(1) for fish. Printed by `sheaf completion fish`.
# The command answers with lines KIND,VALUE and a description after a tab.
function _sheaf_completion
    set -l line (commandline -cp)
    set -l word (commandline -ct)
    set -l option (string match -r -- '^--[^=]*=' $word)
    set -l part (string replace -r -- '^--[^=]*=' '' $word)
    for answer in (env COMP_WORDS="$line" _SHEAF_COMPLETE=fish_complete sheaf 2>/dev/null)
        set -l pair (string split -m 1 , -- $answer)
        switch $pair[1]
            case plain open
                echo $pair[2]
            case file
                string replace -r -- '^' "$option" (__fish_complete_path "$part")
            case dir
                string replace -r -- '^' "$option" (__fish_complete_directories "$part")
            case program
                complete -C "$part"
        end
    end
end

complete --no-files --command sheaf --arguments "(_sheaf_completion)"
