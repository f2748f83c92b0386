/* Sequential confirm (SQ). The next message leaves when the former one is confirmed; until then it waits in a buffer.
 * Nothing is sent twice: the route is trusted, so there is no deadline that could pass. The receiver is that of
 * re-send.
 */
#include "hop.pml"

byte current = 1;

inline submit() {
  submitted++;
  if
  :: current == submitted -> put(there, current)
  :: else
  fi
}

inline get_confirm() {
  pick_arrival(back);
  take(back);
  if
  :: current <= submitted && taken == current ->
     confirmed[current] = true;
     current++;
     if
     :: current <= submitted -> put(there, current)
     :: else
     fi
  :: else
  fi;
  taken = 0
}

inline get_message() {
  pick_arrival(there);
  take(there);
  if
  :: comes_out(taken);
     if
     :: put(back, taken)
     :: crashes_after > 0 -> crashes_after--
     fi
  :: crashes_before > 0 -> crashes_before--
  fi;
  taken = 0
}

/* The message that waits for its confirm and the buffer are in memory only. */
inline crash_sender() {
  sender_crashes--;
  current = submitted + 1
}

init {
  set_parameters();
  do
  :: atomic { submitted < messages -> submit() }
  :: atomic { there.size > 0 -> get_message() }
  :: atomic { back.size > 0 -> get_confirm() }
  :: atomic { sender_crashes > 0 -> crash_sender() }
  ROUTE_AND_END
  od;
  judge_the_end()
}
