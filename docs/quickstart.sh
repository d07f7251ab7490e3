#!/bin/sh
# Plays the README's quick start in tmux and records it: docs/quickstart.svg. Look at the result before
# you commit it. Needs tmux, asciinema and npx. BIN is the folder of the binary; without it a release
# build is made.
set -eu
cd "$(dirname "$0")/.."
[ "${BIN:-}" ] || { cargo build --release -p paxoslease-cli && BIN=$PWD/target/release; }
export PATH="$BIN:$PATH" PS1='$ ' PAXOSLEASE_ENDPOINTS=127.0.0.1:7400,127.0.0.1:7410,127.0.0.1:7420
cast=$(mktemp)
tm() { tmux -L quickstart -f /dev/null "$@"; }
trap 'tm kill-server; rm -f "$cast"' EXIT
# The cell over the whole width; below it alice, bob and a watch on the left, and a desk on the right.
shell='bash --noprofile --norc'
split() { tm split-window -P -F '#{pane_id}' "$@" "$shell"; }
cell=$(tm new-session -d -s q -x 150 -y 48 -P -F '#{pane_id}' "$shell")
alice=$(split -v -t "$cell" -l 35)
desk=$(split -h -t "$alice")
bob=$(split -v -t "$alice" -l 23)
watch=$(split -v -t "$bob" -l 11)
tm set -g status off \; set -g window-size manual
# Types a line in a pane, and waits for what is to appear there.
type_in() { tm send-keys -t "$1" -l "$2" && tm send-keys -t "$1" Enter; }
await() {
    for _ in $(seq 300); do
        tm capture-pane -p -t "$1" | grep -q "$2" && sleep 1.4 && return
        sleep 0.1
    done
    echo "no sign of $2 in:" >&2 && tm capture-pane -p -t "$1" >&2 && exit 1
}
asciinema rec --quiet --overwrite --cols 150 --rows 48 --command 'tmux -L quickstart attach -r' "$cast" &
work="sh -c 'echo fence \$PAXOSLEASE_FENCE; sleep 60'"
type_in "$cell" 'paxoslease dev --processes' && await "$cell" '^Ctrl-C '
type_in "$watch" 'paxoslease watch demo' && await "$watch" '^watching '
type_in "$alice" "paxoslease lock demo --ttl 3s --holder alice -- $work" && await "$alice" '^fence '
type_in "$bob" "paxoslease lock demo --ttl 3s --holder bob -- $work" && await "$bob" '^waiting'
type_in "$desk" 'paxoslease get demo' && await "$desk" '^demo '
node=$(tm capture-pane -p -t "$cell" | sed -n 's/^ *kill -9 //p')
type_in "$desk" "kill -9 $node   # node 1" && await "$cell" '^node 1 ended'
type_in "$desk" 'paxoslease status' && await "$desk" '^ready: '
type_in "$desk" 'paxoslease get demo' && sleep 2
lock=$(pgrep -P "$(tm display -p -t "$alice" '#{pane_pid}')")
type_in "$desk" "kill -9 $lock   # alice" && await "$bob" '^fence '
type_in "$desk" 'paxoslease get demo' && sleep 3
tm detach-client -s q && wait
npx --yes svg-term-cli --in "$cast" --out docs/quickstart.svg --window --no-cursor --width 150 --height 48
