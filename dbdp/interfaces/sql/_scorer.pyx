# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Scorers, compiled and without NumPy: those of a session, and in `_rows.pxi` those of linear models."""

import json
from array import array

from cpython.bytes cimport PyBytes_AsString, PyBytes_Size
from cpython.unicode cimport PyUnicode_FromStringAndSize
from libc.math cimport INFINITY, asinh, exp, fabs, log1p, sqrt
from libc.stdio cimport snprintf
from libc.string cimport memcpy


cdef extern from "_score.h" nogil:
    double score_array(const char *data, long length, const double *weights, bint narrow, double *square)

cdef int FLOAT4 = 700  # PostgreSQL's OID of the type


MOST_KNOWN = 256  # scorers that a session holds, so that its memory does not grow with the number of models it uses
cdef double NOTHING = float("nan")  # no decision: a null, another shape, a value that is not finite


cdef class Scorer:
    """A scorer of one model; the decision of a model of classes is the number of a class."""

    cdef readonly object classes  # not declared a list, so that Cython does not skip the check for None

    cdef double decision(self, bytes features):
        return NOTHING

    cdef list probabilities(self, bytes features):
        """Return the probability of each class, or None."""
        return None

    def __call__(self, bytes features not None):
        cdef double decision = self.decision(features)
        return decision if decision == decision else None


cdef object _written(double value):
    """Return a number as text with all its digits; None for NaN."""
    cdef char text[32]
    return None if value != value else PyUnicode_FromStringAndSize(text, snprintf(text, 32, "%.17g", value))


cdef object _probability(double decision):
    """Return 1 / (1 + exp(-decision)) as text, or None: PL/Python writes a float in three times the time.

    From 0.001 on it has 16 decimal places, which integer arithmetic computes fast.
    """
    cdef char text[32]
    cdef double probability
    cdef long long scaled
    cdef int place
    if decision != decision:
        return None
    probability = 1.0 / (1.0 + exp(-decision))
    if probability < 0.001 or probability >= 1.0:
        return _written(probability)
    scaled = <long long> (probability * 1e16)
    for place in range(17, 1, -1):
        text[place] = <char> (48 + scaled % 10)
        scaled //= 10
    text[0], text[1] = b"0", b"."
    return PyUnicode_FromStringAndSize(text, 18)


cdef object _class_of(Scorer scorer, double chosen):
    """Return the class of a number; raise ValueError if the scorer has none, as this module indexes without a check."""
    if scorer.classes is None or not 0.0 <= chosen < len(scorer.classes):
        raise ValueError("the model does not choose a class")
    return scorer.classes[<long> chosen]


cdef class _OfClasses(Scorer):
    """A scorer of several classes; the base class, which has a compiled scorer for each."""

    cdef list _scorers

    def __init__(self, list scorers, list classes):
        if len(scorers) != len(classes):
            raise ValueError(f"{len(scorers)} scorers do not fit {len(classes)} classes")
        for scorer in scorers:
            if not isinstance(scorer, Scorer):
                raise TypeError("a class is scored by a compiled scorer")
        self._scorers, self.classes = scorers, classes


cdef class ClassScorer(_OfClasses):
    """The number of the class, from 0, with the largest decision; the first of equal ones."""

    cdef double decision(self, bytes features):
        cdef double decision, largest = -INFINITY
        cdef long number, best = 0
        for number in range(len(self._scorers)):
            decision = (<Scorer> self._scorers[number]).decision(features)
            if decision != decision:
                return NOTHING
            if decision > largest:
                best, largest = number, decision
        return best


cdef class ProbabilitiesScorer(_OfClasses):
    """The probabilities of the classes: the softmax of the decisions, or of their logarithms.

    With `apart`, each class was learned against the rest. Its logistic probability is then divided by the sum of all,
    which is the softmax of the logarithms of the logistic probabilities.
    """

    cdef bint _apart

    def __init__(self, list scorers, list classes, bint apart):
        super().__init__(scorers, classes)
        self._apart = apart

    cdef list probabilities(self, bytes features):
        cdef double decision, largest = -INFINITY, total = 0.0
        cdef list decisions = []
        for scorer in self._scorers:
            decision = (<Scorer> scorer).decision(features)
            if decision != decision:
                return None
            decision = min(max(decision, -MOST_DECISION), MOST_DECISION)
            if self._apart:
                decision = min(decision, 0.0) - log1p(exp(-fabs(decision)))
            largest = max(largest, decision)
            decisions.append(decision)
        decisions = [exp(<double> each - largest) for each in decisions]
        for each in decisions:
            total += <double> each
        return [<double> each / total for each in decisions]


cdef double MOST_DECISION = 1e300  # beyond it differences of decisions could be NaN


cdef object _object_of(Scorer scorer, list probabilities):
    """Return the probabilities by class as a JSON object, or None."""
    return None if probabilities is None else json.dumps(dict(zip(scorer.classes, probabilities)))


cdef class CalledScorer(Scorer):
    """A scorer of a network: calls a Python function."""

    cdef object _decide

    def __init__(self, decide, list classes):
        self._decide, self.classes = decide, classes

    cdef double decision(self, bytes features):
        decision = self._decide(features)
        return NOTHING if decision is None else <double> decision

    cdef list probabilities(self, bytes features):
        return self._decide.probabilities(features)


cdef class EncodedScorer(Scorer):
    """Scores features in another form, which a function converts to the bytes that a scorer reads, or to None."""

    cdef object _encode
    cdef Scorer _scorer

    def __init__(self, encode, Scorer scorer):
        self._encode, self._scorer, self.classes = encode, scorer, scorer.classes

    cdef double decision(self, bytes features):
        encoded = self._encode(features)
        return NOTHING if encoded is None else self._scorer.decision(encoded)

    cdef list probabilities(self, bytes features):
        encoded = self._encode(features)
        return None if encoded is None else self._scorer.probabilities(encoded)


ctypedef unsigned int (*number_function)()
ctypedef unsigned int (*command_function)(bint is_used)


cdef class Scorers:
    """The scorers of this session for models of one kind, created when a model is first used; models never change.

    A parallel worker cannot query the server for the model through PL/Python. So `predict` and similar methods
    return None while there is no scorer, and the caller then passes the model to `learn`. A table can be
    altered between two statements, and by a function within one. So scorers of rows are valid for one command:
    `predict_stored` and similar methods, which are called first, receive the time of the statement and look up the
    numbers of the command and of the subtransaction. Every change of a table raises the first, and where a
    subtransaction undoes a change, the second differs. They read rows as they are stored, in half the time of the
    binary form. The scorers of one role are dropped when
    another calls: the first may have passed a false description of the model, and may see other models.

    The arguments are the addresses of the server's functions, or 0.
    """

    cdef number_function _current_role, _current_subtransaction
    cdef command_function _current_command
    cdef unsigned int _role, _command, _subtransaction
    cdef dict _known, _stored
    cdef Scorer _last, _last_stored
    cdef long long _last_model, _last_row_type, _stored_model
    cdef unsigned int _stored_row_type
    cdef double _statement, _named_in
    cdef dict _numbers
    cdef str _last_name
    cdef long long _last_number

    def __init__(self, size_t current_role=0, size_t current_command=0, size_t current_subtransaction=0):
        self._current_role = <number_function> current_role
        self._current_command = <command_function> current_command
        self._current_subtransaction = <number_function> current_subtransaction
        self._role = self._command = self._subtransaction = 0
        self.forget()

    cdef _forget_other_roles(self):
        cdef unsigned int role = self._current_role() if self._current_role != NULL else 0
        if role != self._role:
            self.forget()
            self._role = role

    def forget(self):
        """Drop all scorers."""
        self._known, self._stored = {}, {}
        self._last = self._last_stored = None
        self._statement = NOTHING
        self._forget_names(NOTHING)

    cdef _forget_names(self, double statement):
        self._numbers, self._last_name, self._named_in = {}, None, statement

    cdef bint _has_number(self, str name, double statement):
        """Set `_last_number` to the number that a name has in this statement; return whether it is known."""
        self._forget_other_roles()
        if statement != self._named_in:
            self._forget_names(statement)
        if self._last_name is None or name != self._last_name:
            number = self._numbers.get(name)
            if number is None:
                return False
            self._last_name, self._last_number = name, number
        return True

    def remember(self, str name, long long number, double statement):
        """Store the number of a model by its name, until the statement ends."""
        if self._has_number(name, statement) or len(self._numbers) >= MOST_KNOWN:
            self._forget_names(statement)
        self._numbers[name], self._last_name = number, None

    def number(self, str name, double statement):
        """Return the number that a name has in this statement, or None."""
        return self._last_number if self._has_number(name, statement) else None

    def add(self, long long model, long long row_type, Scorer scorer, Scorer stored=None):
        """Store the scorers of a model for rows of a type: one for the binary, one for the stored form."""
        self._forget_other_roles()
        if len(self._known) >= MOST_KNOWN:
            self.forget()
        self._known[model, row_type] = scorer
        self._stored[model, row_type] = stored
        self._last = self._last_stored = None

    def knows(self, long long model, long long row_type):
        """Return whether there is a scorer."""
        self._forget_other_roles()
        return (model, row_type) in self._known

    cdef bint _has_scorer(self, long long model, long long row_type):
        """Set `_last` to the scorer of a model for rows of a type; return whether there is one."""
        self._forget_other_roles()
        if self._last is None or model != self._last_model or row_type != self._last_row_type:
            scorer = self._known.get((model, row_type))
            if scorer is None:
                return False
            self._last, self._last_model, self._last_row_type = scorer, model, row_type
        return True

    cdef double _decision(self, long long model, long long row_type, bytes features):
        return self._last.decision(features) if self._has_scorer(model, row_type) else NOTHING

    def probability(self, long long model, long long row_type, bytes features not None):
        """Return the probability of the positive class, as text, or None."""
        return _probability(self._decision(model, row_type, features))

    def predict(self, long long model, long long row_type, bytes features not None):
        """Return whether the decision is above 0, or None."""
        cdef double decision = self._decision(model, row_type, features)
        return decision > 0 if decision == decision else None

    def value(self, long long model, long long row_type, bytes features not None):
        """Return the decision, as text, or None."""
        return _written(self._decision(model, row_type, features))

    def label(self, long long model, long long row_type, bytes features not None):
        """Return the class that a ClassScorer chooses, or None."""
        cdef double chosen = self._decision(model, row_type, features)
        return None if chosen != chosen else _class_of(self._last, chosen)

    def probabilities(self, long long model, long long row_type, bytes features not None):
        """Return the probabilities by class, as a JSON object, or None."""
        if self._has_scorer(model, row_type):
            return _object_of(self._last, self._last.probabilities(features))

    def probability_named(self, str name, long long row_type, bytes features not None, double statement):
        """As `probability`, by name."""
        if self._has_number(name, statement):
            return self.probability(self._last_number, row_type, features)

    def predict_named(self, str name, long long row_type, bytes features not None, double statement):
        """As `predict`, by name."""
        if self._has_number(name, statement):
            return self.predict(self._last_number, row_type, features)

    def value_named(self, str name, long long row_type, bytes features not None, double statement):
        """As `value`, by name."""
        if self._has_number(name, statement):
            return self.value(self._last_number, row_type, features)

    def label_named(self, str name, long long row_type, bytes features not None, double statement):
        """As `label`, by name."""
        if self._has_number(name, statement):
            return self.label(self._last_number, row_type, features)

    def probabilities_named(self, str name, long long row_type, bytes features not None, double statement):
        """As `probabilities`, by name."""
        if self._has_number(name, statement):
            return self.probabilities(self._last_number, row_type, features)

    cdef _forget_rows_of_other_commands(self, double statement):
        cdef unsigned int command = 0, subtransaction = 0
        if self._current_command != NULL:
            command, subtransaction = self._current_command(False), self._current_subtransaction()
        if statement == self._statement and command == self._command and subtransaction == self._subtransaction:
            return
        self._statement, self._command, self._subtransaction = statement, command, subtransaction
        self._last = self._last_stored = None
        self._known = {key: scorer for key, scorer in self._known.items() if key[1] == 0}
        self._stored.clear()

    cdef bint _has_scorer_stored(self, long long model, bytes row, double statement):
        """Set `_last_stored` to the scorer of a model for a row as it is stored; return whether there is one."""
        cdef unsigned int row_type
        if PyBytes_Size(row) < 8:
            return False
        self._forget_other_roles()
        memcpy(&row_type, PyBytes_AsString(row) + 4, 4)
        self._forget_rows_of_other_commands(statement)
        if self._last_stored is None or model != self._stored_model or row_type != self._stored_row_type:
            self._last_stored = self._stored.get((model, row_type))
            if self._last_stored is None:
                return False
            self._stored_model, self._stored_row_type = model, row_type
        return True

    cdef double _decision_stored(self, long long model, bytes row, double statement):
        return self._last_stored.decision(row) if self._has_scorer_stored(model, row, statement) else NOTHING

    def probability_stored(self, long long model, bytes row not None, double statement):
        """Return the probability for a row as it is stored, as text, or None."""
        return _probability(self._decision_stored(model, row, statement))

    def predict_stored(self, long long model, bytes row not None, double statement):
        """Return whether the decision for a row as it is stored is above 0, or None."""
        cdef double decision = self._decision_stored(model, row, statement)
        return decision > 0 if decision == decision else None

    def value_stored(self, long long model, bytes row not None, double statement):
        """Return the decision for a row as it is stored, as text, or None."""
        return _written(self._decision_stored(model, row, statement))

    def label_stored(self, long long model, bytes row not None, double statement):
        """Return the class for a row as it is stored, or None."""
        cdef double chosen = self._decision_stored(model, row, statement)
        return None if chosen != chosen else _class_of(self._last_stored, chosen)

    def probabilities_stored(self, long long model, bytes row not None, double statement):
        """Return the probabilities by class for a row as it is stored, as a JSON object, or None."""
        if self._has_scorer_stored(model, row, statement):
            return _object_of(self._last_stored, self._last_stored.probabilities(row))

    def probability_stored_named(self, str name, bytes row not None, double statement):
        """As `probability_stored`, by name."""
        if self._has_number(name, statement):
            return self.probability_stored(self._last_number, row, statement)

    def predict_stored_named(self, str name, bytes row not None, double statement):
        """As `predict_stored`, by name."""
        if self._has_number(name, statement):
            return self.predict_stored(self._last_number, row, statement)

    def value_stored_named(self, str name, bytes row not None, double statement):
        """As `value_stored`, by name."""
        if self._has_number(name, statement):
            return self.value_stored(self._last_number, row, statement)

    def label_stored_named(self, str name, bytes row not None, double statement):
        """As `label_stored`, by name."""
        if self._has_number(name, statement):
            return self.label_stored(self._last_number, row, statement)

    def probabilities_stored_named(self, str name, bytes row not None, double statement):
        """As `probabilities_stored`, by name."""
        if self._has_number(name, statement):
            return self.probabilities_stored(self._last_number, row, statement)


include "_rows.pxi"
