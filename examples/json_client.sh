#!/usr/bin/env bash
# A client of Logbrook's JSON protocol in a shell: bash, head, od and base64.
#
#     logbrook serve --json-port 9095
#     examples/json_client.sh 127.0.0.1 9095 create orders 3
#     echo hello | examples/json_client.sh 127.0.0.1 9095 produce orders 0
#     examples/json_client.sh 127.0.0.1 9095 fetch orders 0 earliest
#     examples/json_client.sh 127.0.0.1 9095 request 7 '{"topic": "orders"}'
#
# Responses are printed as one JSON object per line. Errors go to standard error, with exit code 1.
set -euo pipefail
export LC_ALL=C

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

# request TYPE JSON: send a frame (4 bytes of length, 1 byte of type, the JSON object) and print the response's object.
request() {
    local type=$1 json=$2 length bytes
    length=$((1 + ${#json}))
    printf -v bytes '\\x%02x' $((length >> 24 & 255)) $((length >> 16 & 255)) $((length >> 8 & 255)) \
        $((length & 255)) "$type"
    printf '%b%s' "$bytes" "$json" >&3
    read -r -a bytes < <(head -c 5 <&3 | od -An -tu1) || true
    if ((${#bytes[@]} < 5)); then
        echo "the broker closed the connection" >&2
        return 1
    fi
    length=$((bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3]))
    if ((bytes[4] == 255)); then
        head -c $((length - 1)) <&3 >&2
        echo >&2
        return 1
    fi
    head -c $((length - 1)) <&3
    echo
}

# Print the lines of standard input as JSON records. Base64 needs no quoting and allows any bytes.
records() {
    local line separator=""
    while IFS= read -r line || [[ -n $line ]]; do
        printf '%s{"value_base64":"%s"}' "$separator" "$(printf %s "$line" | base64 | tr -d '\n')"
        separator=,
    done
}

(($# >= 3)) || usage
exec 3<>"/dev/tcp/$1/$2"
command=$3
shift 3

case $command in
    ping) request 10 '{}' ;;
    topics) request 6 '{}' ;;
    create) request 5 "{\"topic\":\"$1\",\"partition_count\":${2:-1}}" ;;
    produce) request 1 "{\"topic\":\"$1\",\"partition\":$2,\"records\":[$(records)]}" ;;
    fetch)
        offset=${3:-earliest}
        [[ $offset =~ ^[0-9]+$ ]] || offset="\"$offset\""
        request 2 "{\"topic\":\"$1\",\"partition\":$2,\"offset\":$offset,\"max_wait_ms\":${4:-0}}"
        ;;
    request) request "$1" "$2" ;;
    *) usage ;;
esac
