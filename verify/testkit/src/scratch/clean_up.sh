# Runs beside a server, as its user and in its scratch directory, whose path is $1. Standard input
# ends when the test is done with the directory, or has ended, in whatever way. Then this ends the
# processes that still work on the data (paused ones, which do not notice the end of their parent,
# too), and removes what the server has left: PostgreSQL's shared memory, and the files.
trap '' HUP INT TERM
read -r _

kill_some() {
  found=1
  for process in /proc/[0-9]*; do
    [ "$process/cwd" -ef data ] && kill -KILL "${process#/proc/}" && found=0
  done 2>/dev/null
  return $found
}
turn=0
while [ $turn -lt 100 ] && kill_some; do turn=$((turn + 1)); done

# Line 7 of the file, which an orderly shutdown removes, has the key and the id of the memory.
[ -f data/postmaster.pid ] && ipcrm -m "$(sed -n '7s/.* //p' data/postmaster.pid)" 2>/dev/null
cd / && rm -rf "$1"
