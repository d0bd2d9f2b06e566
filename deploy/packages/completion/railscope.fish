# Like the bash completion: the program lists its flags.
complete -c railscope -n __fish_is_first_token -a '@COMMANDS@' -f
complete -c railscope -n 'string match -q -- "-*" (commandline -ct)' -a '(railscope --completion-bash (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
