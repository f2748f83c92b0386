/* Re-send (RS). One message is unconfirmed at a time and is sent again when no confirm comes in some time; the others
 * wait in a buffer. The receiver confirms a message after it has sent it on, and remembers nothing.
 *
 * The sender confirms in order, so "current" is the unconfirmed message and those behind it are the buffer.
 */
#include "hop.pml"

byte current = 1;

#define HAS_CURRENT (current <= submitted)

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
  :: HAS_CURRENT && taken == current ->
     confirmed[current] = true;
     current++;
     if
     :: HAS_CURRENT -> put(there, current)
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

/* The unconfirmed message and the buffer are in memory only. */
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
  :: atomic { HAS_CURRENT && IS_QUIET -> put(there, current) }
  :: atomic { HAS_CURRENT && !IS_QUIET && early_wakes > 0 -> early_wakes--; put(there, current) }
  :: atomic { sender_crashes > 0 -> crash_sender() }
  ROUTE_AND_END
  od;
  judge_the_end()
}
