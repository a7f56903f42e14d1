"""The German studies."""

from examples.documents.studies import Study

STUDIES = (
    Study(
        "mauersegler-im-altbau.pdf",
        "Mauersegler im Altbau: Nistplätze vor und nach der Dämmung",
        "Henrike Falkner und Jost Wendelin",
        "Arbeitskreis Gebäudebrüter, Oktober 2022",
        "Wenn Fassaden gedämmt werden, verschwinden die Spalten unter den Dächern. Nehmen Mauersegler Ersatzkästen an?",
        "An 29 Häusern wurden vor der Dämmung alle Nester gezählt und danach ebenso viele Kästen "
        "eingebaut. Drei Sommer lang haben Nachbarn an festen Abenden die Einflüge notiert.",
        "Im ersten Jahr blieb jeder zweite Kasten leer, im dritten waren mehr Paare da als zuvor. Kästen "
        "an der alten Stelle wurden sofort bezogen, versetzte erst spät. Wo über dem Kasten das Rufen "
        "anderer Segler zu hören war, ging es um ein Jahr schneller.",
        "Brutpaare an 29 Häusern",
        (
            "Jahr|Paare|belegte Kästen",
            "vor der Dämmung|64|–",
            "1. Jahr|31|48 %",
            "3. Jahr|71|86 %",
        ),
    ),
    Study(
        "wartezeiten-im-buergeramt.html",
        "Wartezeiten im Bürgeramt: Termin oder Schlange?",
        "Annegret Lohmeyer",
        "Hefte zur Verwaltungspraxis, April 2023",
        "Ein Amt ließ ein halbes Jahr lang Bürger mit und ohne Termin zugleich zu. Wer wartete wie lange?",
        "Ausgewertet wurden 41.300 Vorgänge mit Ankunft, Aufruf und Ende. Die Schalter wurden nach einem "
        "festen Plan auf beide Gruppen verteilt.",
        "Mit Termin wartete man neun Minuten im Amt, aber achtzehn Tage darauf; ohne Termin waren es "
        "dreiundfünfzig Minuten, dafür am selben Tag. Für kurze Anliegen war die Schlange allen lieber. "
        "Das Amt hält seither zwei Schalter für sie frei.",
        "Mittlere Wartezeit im Amt",
        (
            "Anliegen|mit Termin|ohne Termin",
            "Ausweis|9 min|58 min",
            "Ummeldung|8 min|51 min",
            "Beglaubigung|10 min|34 min",
        ),
    ),
    Study(
        "streuobst-und-wildbienen.md",
        "Streuobst und Wildbienen",
        "Leonhard Aicher und Mathilde Brück",
        "Naturkundliche Blätter, September 2021",
        "Alte Obstwiesen gelten als Heimat vieler Wildbienen. Liegt es an den Bäumen oder am späten Mähen?",
        "Auf zwölf Wiesen wurden von März bis August Farbschalen aufgestellt; sechs wurden im Mai, sechs "
        "im Juli gemäht.",
        "Wir fanden 83 Arten. Spät gemähte Wiesen hatten ein Drittel mehr Arten, gleich wie alt die Bäume "
        "waren. Stehendes Totholz brachte acht weitere Arten, die sonst nirgends vorkamen.",
        "Arten je Wiese",
        (
            "Mahd|mit Totholz|ohne Totholz",
            "Mai|27|22",
            "Juli|38|30",
        ),
    ),
    Study(
        "chorprobe-und-atem.txt",
        "Chorprobe und Atem",
        "Dorothee Winkelried",
        "Mitteilungen der Singschule, Juni 2022",
        "Ältere Sänger sagen, die Probe am Dienstag mache sie munter. Lässt sich das messen?",
        "62 Mitglieder zweier Chöre bliesen vor und nach zwanzig Proben in ein einfaches Messgerät und "
        "gaben an, wie wach sie sich fühlten. Als Vergleich dienten Abende mit Vortrag statt Probe.",
        "Nach der Probe war der Atemstoß im Mittel um vier Prozent kräftiger, nach dem Vortrag "
        "unverändert. Wacher fühlten sich die Mitglieder nach beidem, sofern es danach Kuchen gab.",
        "Änderung des Atemstoßes",
        (
            "Abend|unter 60 Jahren|ab 60 Jahren",
            "Probe|+3 %|+5 %",
            "Vortrag|0 %|0 %",
        ),
    ),
    Study(
        "kuehle-hoefe.pdf",
        "Kühle Höfe: Wie Innenhöfe die Nacht abkühlen",
        "Veit Sonnleitner, Carola Immenhof und Pavel Rauth",
        "Stadtklima in kleinen Studien 3, August 2023",
        "In heißen Nächten öffnet man die Fenster zum Hof. Welcher Hof kühlt, welcher nicht?",
        "In 44 Höfen eines Viertels hingen von Juni bis August Thermometer auf der Höhe des ersten Stocks. "
        "Erfasst wurden Bäume, Pflaster, Breite und die Wände.",
        "Höfe mit einem großen Baum waren um zehn Uhr abends 2,1 Grad kühler als gepflasterte ohne Baum, "
        "gegen Morgen aber gleich warm. Helle Wände halfen am Tag, begrünte in der Nacht. Ein offenes Tor "
        "zur Straße brachte so viel wie ein zweiter Baum.",
        "Temperatur um 22 Uhr an heißen Tagen",
        (
            "Hof|Mittel",
            "Pflaster, kein Baum|26,9 °C",
            "Pflaster, Baum|25,3 °C",
            "Wiese, Baum|24,8 °C",
        ),
    ),
    Study(
        "briefe-an-die-redaktion.html",
        "Briefe an die Redaktion: Worüber eine Kleinstadt sich ärgert",
        "Gernot Ahlsdorf",
        "Beiträge zur Ortsgeschichte, Januar 2020",
        "Was bewegte Leser der Kreiszeitung genug, um zur Feder zu greifen?",
        "Alle 3.118 Leserbriefe der Jahre 1955 bis 1985 wurden gelesen und von zwei Personen in Themen geordnet.",
        "Verkehr steht in jedem Jahrzehnt an erster Stelle, doch der Ton ändert sich: aus Bitten werden "
        "Vorwürfe, aus Vorwürfen Vorschläge. Über das Wetter beschwerten sich nur Zugezogene. Grüße aus "
        "der Leserschaft: schöne, süße, gemütliche Größe in jedem Brief über das Volksfest.",
        "Briefe je Thema",
        (
            "Thema|1955–65|1966–75|1976–85",
            "Verkehr|204|377|412",
            "Schule|131|166|290",
            "Volksfest|88|97|140",
        ),
    ),
    Study(
        "strassenbaeume-und-streusalz.pdf",
        "Straßenbäume und Streusalz",
        "Frauke Diepholt",
        "Grünflächenamt, Versuchsbericht 11, März 2022",
        "Splitt statt Salz: Erholen sich die Linden, und stürzen mehr Fußgänger?",
        "Vier Winter lang wurde auf der einen Hälfte von sechzehn Straßen Salz, auf der anderen Splitt "
        "gestreut. Im Juli wurden die Blätter untersucht; die Unfallstelle des Krankenhauses zählte "
        "Stürze.",
        "Der Salzgehalt der Blätter sank auf die Hälfte, die Kronen wurden nach drei Jahren dichter. "
        "Stürze waren auf beiden Hälften gleich häufig. Im Frühjahr kostete das Kehren des Splitts mehr "
        "als das Salz zuvor.",
        "Chlorid in Lindenblättern",
        (
            "Winter|Salz|Splitt",
            "1.|9,8 g/kg|9,1 g/kg",
            "2.|9,5 g/kg|7,0 g/kg",
            "4.|9,9 g/kg|4,7 g/kg",
        ),
    ),
    Study(
        "schulgarten-und-gemuese.md",
        "Schulgarten und Gemüse",
        "Kirsten Übelacker",
        "Werkstatt Schule, Juli 2021",
        "Essen Kinder mehr Gemüse, wenn sie es selbst gezogen haben?",
        "Sechs dritte Klassen zogen Radieschen, Erbsen und Kohlrabi, sechs andere nicht. Gewogen wurde, "
        "was nach dem Mittagessen in der Schale blieb.",
        "Von den eigenen Sorten aßen die Gartenklassen doppelt so viel, von anderen Sorten nicht mehr als "
        "zuvor. Kohlrabi war auch hier nicht zu retten.",
        "Verzehr je Kind und Mahlzeit",
        (
            "Gemüse|Gartenklassen|andere",
            "Radieschen|31 g|12 g",
            "Erbsen|64 g|35 g",
            "Kohlrabi|9 g|8 g",
        ),
    ),
)
