/* The receiver of a continuous index. A message whose turn has come is sent on, and then those of the queue that follow
 * it; one that comes too early is put in the queue; one whose turn is over is dropped.
 */
byte current;                           /* index of the last message that was sent on */
byte queued[MESSAGES_MAX + 1];          /* by index: the message that waits, 0 for none */
byte turn;                              /* index of a message that is sent on now */

inline forget_what_came() {
  current = 0;
  queued[1] = 0;
  queued[2] = 0;
  queued[3] = 0
}

inline take_index(message, index) {
  if
  :: index > current && queued[index] == 0 -> queued[index] = message
  :: else
  fi
}

/* Sends on what can be sent on; the receiver may crash after each message of it. "crashed" says whether it did. */
inline send_on() {
  do
  :: crashed -> break
  :: !crashed && current < MESSAGES_MAX && queued[current + 1] != 0 ->
     turn = queued[current + 1];
     queued[current + 1] = 0;
     comes_out(turn);
     turn = 0;
     if
     :: current++
     :: crashes_after > 0 -> crashes_after--; crashed = true; forget_what_came()
     fi
  :: !crashed && (current >= MESSAGES_MAX || queued[current + 1] == 0) -> break
  od
}
