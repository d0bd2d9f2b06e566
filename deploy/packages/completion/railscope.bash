# The program lists its flags, but not its commands, because serve is the default.
# Commands are inserted when the packages are built.
_railscope() {
	local cur=${COMP_WORDS[COMP_CWORD]} words='@COMMANDS@'
	if [[ $COMP_CWORD != 1 || $cur == -* ]]; then
		words=$("${COMP_WORDS[0]}" --completion-bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _railscope -o default railscope
